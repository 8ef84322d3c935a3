package etcdcluster

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

func TestALargeQuotaCausesOneWarning(t *testing.T) {
	for size, want := range map[int64]int{8 << 30: 0, 8<<30 + 1: 1} {
		c := operatortest.New(&v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: v1alpha1.EtcdClusterSpec{QuotaBackendBytes: &size}})
		r := &Reconciler{Client: c, Live: c, Recorder: c.Events, Now: time.Now, Version: DefaultVersion}
		for range 3 {
			c.Reconcile(t, r, "x")
		}
		warnings := 0
		for range len(c.Events.Events) {
			if strings.Contains(<-c.Events.Events, "LargeQuota") {
				warnings++
			}
		}
		if warnings != want {
			t.Errorf("%d bytes: %d warnings, want %d", size, warnings, want)
		}
	}
}
