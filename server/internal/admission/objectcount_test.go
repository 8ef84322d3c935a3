package admission

import (
	"context"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	testingclock "k8s.io/utils/clock/testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/admission/objectlimit"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestObjectsAreRefusedInFullClusters(t *testing.T) {
	limits := objectlimit.New(objectlimit.Config{
		Standard: 3, Interval: time.Minute, Clock: testingclock.NewFakePassiveClock(time.Unix(0, 0)),
		Count: func(context.Context) (int64, error) { return 3, nil },
	})
	limits.Follow(newConfig(t, nil, at("root", "root:full")...).Set)
	for name, test := range map[string]struct {
		write
		cluster string
		want    string
	}{
		"an object in a full cluster is refused": {write{group: "example.org", object: `{}`}, "full",
			"403 Forbidden: the logical cluster holds 3 objects, and its total object count limit is 3: delete unneeded objects, or ask an " +
				"administrator of the installation for a higher " + corev1alpha1.MaxTotalObjectsAnnotation},
		"a subresource is admitted":                       {write{group: "example.org", object: `{}`, subresource: "scale"}, "full", ""},
		"a review is admitted":                            {write{group: "authorization.k8s.io", object: `{}`}, "full", ""},
		"an object in root, without a limit, is admitted": {write{group: "example.org", object: `{}`}, "root", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := test.attributes(t, "Widget")
			ctx := request.WithUser(in(t, logicalcluster.Name(test.cluster)), tenant)
			wantOutcome(t, a, objectCountLimit{limits}.Validate(ctx, a, nil), test.want)
		})
	}
}
