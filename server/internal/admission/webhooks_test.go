package admission

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// hooksIn returns a configuration with webhooks for a version of a resource of example.org.
func hooksIn(cluster, name, version, resource string, n int) *configuration {
	c := objecttest.In(cluster, &configuration{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}})
	none, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	for i := range n {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: fmt.Sprintf("w%d.example.org", i), SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.org"}, APIVersions: []string{version}, Resources: []string{resource}},
			}},
		})
	}
	return c
}

// newWebhooks returns the webhooks of a configuration, whose clients read nothing.
func newWebhooks(t *testing.T, objects ...objecttest.Object) *validatingWebhooks {
	t.Helper()
	config := newConfig(t, nil, objects...)
	config.ClientFor = func(logicalcluster.Name) (kubernetes.Interface, error) { return &storedObjects{}, nil }
	return newValidatingWebhooks(config)
}

func TestWhichWebhooksAreCalled(t *testing.T) {
	bound := boundWidgets("provider")
	small := write{group: "example.org", version: "v1", object: `{}`}
	for name, test := range map[string]struct {
		objects []objecttest.Object
		write
		kind   string
		size   int // of the object, in MiB
		called bool
		want   string
	}{
		"without configurations, none is called":                       {nil, small, "Widget", 0, false, ""},
		"the webhooks of the cluster are called":                       {[]objecttest.Object{hooksIn("team", "a", "v1", "widgets", 1)}, small, "Widget", 0, true, ""},
		"the webhooks of another cluster are not":                      {[]objecttest.Object{hooksIn("root", "a", "v1", "widgets", 1)}, small, "Widget", 0, false, ""},
		"the webhooks of the provider are called for a bound resource": {[]objecttest.Object{bound, hooksIn("provider", "a", "v1", "widgets", 1)}, small, "Widget", 0, true, ""},
		"the webhooks of the consumer are not":                         {[]objecttest.Object{bound, hooksIn("team", "a", "v1", "widgets", 1)}, small, "Widget", 0, false, ""},
		"the webhooks of the provider are not called for another":      {[]objecttest.Object{bound, hooksIn("provider", "a", "v1", "gadgets", 1)}, small, "Gadget", 0, false, ""},
		"upstream compares webhooks of other resources":                {[]objecttest.Object{hooksIn("team", "a", "v1", "gadgets", 1)}, small, "Widget", 0, true, ""},
		"none is called for a configuration of webhooks":               {[]objecttest.Object{hooksIn("team", "a", "v1", "widgets", 1)}, write{group: "admissionregistration.k8s.io", object: `{}`}, "ValidatingWebhookConfiguration", 0, false, ""},
		"as many webhooks as the limit are called":                     {[]objecttest.Object{hooksIn("team", "a", "v1", "widgets", maxWebhooks)}, small, "Widget", 0, true, ""},
		"more webhooks refuse the request":                             {[]objecttest.Object{hooksIn("team", "a", "v1", "widgets", maxWebhooks), hooksIn("team", "b", "v1", "widgets", 1)}, small, "Widget", 0, false, "403 Forbidden: logical cluster team has 101 webhooks for this request, the limit is 100: delete some of its webhook configurations"},
		"webhooks for another version count":                           {[]objecttest.Object{hooksIn("team", "a", "v2", "widgets", maxWebhooks+1)}, small, "Widget", 0, false, "403 Forbidden: logical cluster team has 101 webhooks for this request, the limit is 100: delete some of its webhook configurations"},
		"webhooks for other resources do not count":                    {[]objecttest.Object{hooksIn("team", "a", "v1", "widgets", maxWebhooks), hooksIn("team", "b", "v1", "gadgets", 1)}, small, "Widget", 0, true, ""},
		"too many webhooks of the provider name its cluster":           {[]objecttest.Object{bound, hooksIn("provider", "a", "v1", "widgets", maxWebhooks+1)}, small, "Widget", 0, false, "403 Forbidden: logical cluster provider has 101 webhooks for this request, the limit is 100: delete some of its webhook configurations"},
		"a large object is sent to one webhook":                        {[]objecttest.Object{hooksIn("team", "a", "v1", "widgets", 1)}, small, "Widget", 17, true, ""},
		"a large object is not sent to several webhooks":               {[]objecttest.Object{hooksIn("team", "a", "v1", "widgets", 2)}, small, "Widget", 9, false, "403 Forbidden: sending the object to the 2 webhooks of logical cluster team takes 18 MiB, the limit for one write is 16 MiB: narrow the rules of the webhooks, or use a smaller object"},
		"an object within the limit is sent to several webhooks":       {[]objecttest.Object{hooksIn("team", "a", "v1", "widgets", 2)}, small, "Widget", 7, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, called := newWebhooks(t, test.objects...), false
			a := test.attributes(t, test.kind)
			contentOf(t, a)["spec"] = strings.Repeat("x", test.size<<20)
			err := w.webhooks.call(in(t, "team"), a, func(*validating.Plugin) error {
				called = true
				return nil
			})
			wantOutcome(t, a, err, test.want)
			if called != test.called {
				t.Errorf("upstream's plugin is called: %t, want %t", called, test.called)
			}
		})
	}

	// The webhook has no URL: calling it fails.
	review := write{group: "authorization.k8s.io", object: `{}`}.attributes(t, "SubjectAccessReview")
	everything := hooksIn("team", "a", "*", "*", 1)
	everything.Webhooks[0].Rules[0].APIGroups = []string{"*"}
	w := newWebhooks(t, everything)
	if err := w.Validate(in(t, "team"), review, admission.NewObjectInterfacesFromScheme(nil)); err != nil {
		t.Errorf("webhooks are called for a review: %v", err)
	}
}

func TestWebhooksAreCompiledAgainWhenTheyChange(t *testing.T) {
	config := newConfig(t, nil)
	config.ClientFor = func(logicalcluster.Name) (kubernetes.Interface, error) { return &storedObjects{}, nil }
	w := newValidatingWebhooks(config)
	show := func(c *configuration, version string) {
		c.ResourceVersion = version
		if err := config.Set.ValidatingWebhookConfigurations.Indexer().Add(c); err != nil {
			t.Fatal(err)
		}
	}
	plugin := func(from source) *validating.Plugin {
		t.Helper()
		found, ok, err := w.webhooks.instance(t.Context(), from)
		if err != nil || !ok {
			t.Fatalf("%v has no webhooks: %v", from, err)
		}
		return found.plugin
	}
	show(hooksIn("provider", "a", "v1", "widgets", 1), "1")
	first := plugin(source{"provider", "team"})
	if again := plugin(source{"provider", "team"}); again != first {
		t.Error("unchanged webhooks are compiled again")
	}
	if other := plugin(source{"provider", "other"}); other == first {
		t.Error("two consumers share an instance, which selects by the namespaces of one of them")
	}
	show(hooksIn("provider", "a", "v1", "widgets", 1), "2")
	if changed := plugin(source{"provider", "team"}); changed == first {
		t.Error("changed webhooks are not compiled again")
	}
}
