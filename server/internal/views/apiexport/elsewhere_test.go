package apiexport

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// holder is the shard that holds the logical cluster far, with the export widgets.
type holder struct {
	arrive func()
	err    error
}

func (holder) Locate(context.Context, string) (logicalcluster.Name, bool, error) {
	return "", false, nil
}

func (h holder) Has(_ context.Context, cluster logicalcluster.Name, _ schema.GroupResource, name string) (bool, error) {
	exists := cluster == "far" && name == "widgets" && h.err == nil
	if exists {
		h.arrive()
	}
	return exists, h.err
}

// A controller can use the URL of an export at another shard before the feed has brought the export.
func TestAViewFindsTheExportOfAnotherShard(t *testing.T) {
	late := references.Unavailable("late")
	for name, c := range map[string]struct {
		export, user string
		err          error
		allowed      bool
		retry        bool
	}{
		"allowed there":               {export: "widgets", user: "ada", allowed: true},
		"refused there":               {export: "widgets", user: "eve"},
		"absent":                      {export: "none", user: "ada"},
		"no response":                 {export: "widgets", user: "ada", err: late, retry: true},
		"refused, before the absence": {export: "none", user: "eve", err: late},
	} {
		o := objecttest.New(t)
		o.Share(func(logicalcluster.Name) (string, []logicalcluster.Name) { return "us", nil })
		index := pathindex.New(o.Set)
		all, err := exports.New(o.Set, index, exports.System{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := references.New(o.Set, index)
		r.Share(holder{err: c.err, arrive: func() {
			o.Offer("us", objecttest.In("far", &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}))
		}})
		ada := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "ada" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
		v, _, err := Config{Exports: all, References: r, Authorizer: ada}.Find("far/" + c.export + "/clusters/*/version")
		if err != nil {
			t.Fatal(err)
		}
		decision, _, err := v.Authorize(t.Context(), authorizer.AttributesRecord{User: &user.DefaultInfo{Name: c.user}, Verb: "get", Path: "/api"})
		if (decision == authorizer.DecisionAllow) != c.allowed || references.IsRetriable(err) != c.retry || (err != nil) != c.retry {
			t.Errorf("%s: got %v, %v", name, decision, err)
		}
	}
}

// unloaded is an exports.Elsewhere that has loaded nothing but the export itself.
type unloaded struct{}

func (unloaded) Here(cluster logicalcluster.Name) bool    { return cluster == "here" }
func (unloaded) Loaded(logicalcluster.Name) bool          { return false }
func (unloaded) Deleted(logicalcluster.Name, string) bool { return false }

// The policy of the provider of claimed objects may be in roles that this shard has not received.
func TestClaimedObjectsOfAProviderThatIsNotLoadedAreNotServed(t *testing.T) {
	for cluster, retry := range map[string]bool{"far": true, "here": false} {
		provider := objecttest.In(cluster, &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}})
		provider.Status.IdentityHash = "hash"
		o := objecttest.New(t)
		all, err := exports.New(o.Set, pathindex.New(o.Set), exports.System{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		o.Show(provider)
		all.Share(unloaded{})
		v := &view{Config: Config{Exports: all, Rules: authorization.NewRules(o.Set)}, target: logicalcluster.Cluster{Wildcard: true}}
		claim := &apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: "example.org", Resource: "widgets"},
			Verbs: []string{"*"}, IdentityHash: "hash"}
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ada"}, Verb: "list", APIGroup: "example.org", Resource: "widgets"}
		decision, _, err := v.authorizeClaimed(t.Context(), a, claim, nil)
		if references.IsRetriable(err) != retry || (decision == authorizer.DecisionAllow) == retry {
			t.Errorf("%s: got %v, %v", cluster, decision, err)
		}
	}
}
