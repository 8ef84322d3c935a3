package admission

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	webhookrules "k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/informers/scoped"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// maxWebhookClusters is the maximum number of clusters with compiled webhooks in memory, for each kind of webhook.
	maxWebhookClusters = 1024
	// perWebhook is how many bytes of memory a call takes for each byte of an object: upstream encodes the object for all validating webhooks
	// at the same time.
	perWebhook = 4
	// maxSent is how many bytes one write may send to webhooks of a kind. Encoding them takes about a tenth of a second on two processors.
	maxSent = 16 << 20
)

// webhooks calls the webhooks of the cluster of each request or, for a bound API, those of its provider. A cluster with configurations has
// an instance of upstream's plugin, which is created when they are first used and created again when they change. Other clusters have none.
type webhooks[P any] struct {
	config       Config
	fingerprints func(context.Context, logicalcluster.Name) ([sha256.Size]byte, bool, error)
	build        func() (P, *generic.Webhook, error)
	// rules returns the rules of each webhook of a cluster.
	rules func(logicalcluster.Name) ([][]admissionregistrationv1.RuleWithOperations, error)

	mu        sync.Mutex // serializes the creation of instances
	instances *lru.Cache // of instance[P], by source
}

type instance[P any] struct {
	fingerprint [sha256.Size]byte
	plugin      P
	rules       [][]admissionregistrationv1.RuleWithOperations // of each webhook
}

// matching returns the number of webhooks with a rule that matches a request.
func (i instance[P]) matching(a admission.Attributes) int {
	n := 0
	for _, all := range i.rules {
		if slices.ContainsFunc(all, func(r admissionregistrationv1.RuleWithOperations) bool {
			matcher := webhookrules.Matcher{Rule: r, Attr: a}
			return matcher.Matches()
		}) {
			n++
		}
	}
	return n
}

// instance returns the plugin for a source of rules; ok is false if it has no webhooks.
func (w *webhooks[P]) instance(ctx context.Context, from source) (made instance[P], ok bool, err error) {
	fingerprint, found, err := w.fingerprints(ctx, from.rules)
	if err != nil || !found {
		return made, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if found, known := w.instances.Get(from); known && found.(instance[P]).fingerprint == fingerprint {
		return found.(instance[P]), true, nil
	}
	made.fingerprint = fingerprint
	if made.rules, err = w.rules(from.rules); err != nil {
		return made, false, err
	}
	var hook *generic.Webhook
	if made.plugin, hook, err = w.build(); err != nil {
		return made, false, err
	}
	client, err := w.config.ClientFor(from.object)
	if err != nil {
		return made, false, err
	}
	hook.InspectFeatureGates(utilfeature.DefaultFeatureGate)
	hook.SetExternalKubeClientSet(client)
	hook.SetExternalKubeInformerFactory(scoped.New(w.config.Set, from.object, from.rules))
	hook.SetUnconditionalAuthorizer(w.config.Authorizer)
	hook.SetServiceResolver(outbound.NoServices{})
	hook.SetAuthenticationInfoResolverWrapper(w.config.WebhookAuthentication)
	if err := hook.ValidateInitialization(); err != nil {
		return made, false, fmt.Errorf("initializing the webhooks of logical cluster %s: %w", from.rules, err)
	}
	w.instances.Add(from, made)
	return made, true, nil
}

// call calls the webhooks for a request: those of the provider for a bound API, and those of the cluster itself for all other resources.
func (w *webhooks[P]) call(ctx context.Context, a admission.Attributes, dispatch func(P) error) error {
	from, err := sources(ctx, w.config, a)
	if err != nil {
		return err
	}
	cluster := from[len(from)-1].rules
	found, ok, err := w.instance(ctx, from[len(from)-1])
	if err != nil || !ok || configures(a) {
		return err
	}
	webhooks := found.matching(a)
	if webhooks == 0 {
		return dispatch(found.plugin) // another version of the resource may match
	}
	if webhooks > maxWebhooks {
		return forbidden(a, "logical cluster %s has %d webhooks for this request, the limit is %d: delete some of its webhook configurations",
			cluster, webhooks, maxWebhooks)
	}
	size := encodedSize(a.GetObject()) + encodedSize(a.GetOldObject())
	if webhooks > 1 && webhooks*size > maxSent {
		return forbidden(a, "sending the object to the %d webhooks of logical cluster %s takes %d MiB, the limit for one write is %d MiB: "+
			"narrow the rules of the webhooks, or use a smaller object", webhooks, cluster, webhooks*size>>20, maxSent>>20)
	}
	if err := fairqueue.From(ctx).Take(int64(perWebhook * webhooks * size)); err != nil {
		return err
	}
	return dispatch(found.plugin)
}

// hookRules returns a function that returns the rules of each webhook of a cluster, with all versions of their resources: upstream calls a
// webhook for another version of the same resource too.
func hookRules[T object](lister informers.Lister[T]) func(logicalcluster.Name) ([][]admissionregistrationv1.RuleWithOperations, error) {
	return func(cluster logicalcluster.Name) ([][]admissionregistrationv1.RuleWithOperations, error) {
		list, err := lister.List(cluster)
		var all [][]admissionregistrationv1.RuleWithOperations
		add := func(hook []admissionregistrationv1.RuleWithOperations) {
			hook = slices.Clone(hook)
			for i := range hook {
				hook[i].APIVersions = []string{"*"}
			}
			all = append(all, hook)
		}
		for _, configuration := range list {
			switch c := any(configuration).(type) {
			case *admissionregistrationv1.MutatingWebhookConfiguration:
				for i := range c.Webhooks {
					add(c.Webhooks[i].Rules)
				}
			case *admissionregistrationv1.ValidatingWebhookConfiguration:
				for i := range c.Webhooks {
					add(c.Webhooks[i].Rules)
				}
			}
		}
		return all, err
	}
}

// encodedSize returns the approximate size of an object in bytes.
func encodedSize(obj runtime.Object) int {
	switch obj := obj.(type) {
	case runtime.Unstructured:
		return bytesIn(obj.UnstructuredContent())
	case interface{ Size() int }:
		return obj.Size()
	case nil:
		return 0
	}
	// Internal types of upstream have no method Size. Encoding one costs as much as calling a webhook.
	encoded, err := json.Marshal(obj)
	if err != nil {
		return 0
	}
	return len(encoded)
}

// fingerprintOf returns a function that returns a hash of the UIDs and versions of the objects of a cluster, and whether it has any.
func fingerprintOf[T object](lister informers.Lister[T]) func(context.Context, logicalcluster.Name) ([sha256.Size]byte, bool, error) {
	return func(ctx context.Context, cluster logicalcluster.Name) ([sha256.Size]byte, bool, error) {
		lister.Current(ctx, cluster)
		list, err := lister.List(cluster)
		if err != nil || len(list) == 0 {
			return [sha256.Size]byte{}, false, err
		}
		versions := make([]string, len(list))
		for i, obj := range list {
			versions[i] = string(obj.GetUID()) + "/" + obj.GetResourceVersion()
		}
		slices.Sort(versions)
		return sha256.Sum256([]byte(strings.Join(versions, "\n"))), true, nil
	}
}

type mutatingWebhooks struct {
	*admission.Handler
	webhooks webhooks[*mutating.Plugin]
}

var _ admission.MutationInterface = &mutatingWebhooks{}

func newMutatingWebhooks(config Config) *mutatingWebhooks {
	build := func() (*mutating.Plugin, *generic.Webhook, error) {
		p, err := mutating.NewMutatingWebhook(io.Reader(nil))
		if err != nil {
			return nil, nil, err
		}
		return p, p.Webhook, nil
	}
	return &mutatingWebhooks{
		Handler: handles(admission.Connect, admission.Create, admission.Delete, admission.Update),
		webhooks: webhooks[*mutating.Plugin]{
			config: config, fingerprints: fingerprintOf(config.Set.MutatingWebhookConfigurations), build: build,
			instances: lru.New(maxWebhookClusters),
			rules:     hookRules(config.Set.MutatingWebhookConfigurations),
		},
	}
}

// Admit implements admission.MutationInterface.
func (w *mutatingWebhooks) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if isReview(a) {
		return nil
	}
	return w.webhooks.call(ctx, a, func(plugin *mutating.Plugin) error {
		return withProtection(a, func() error { return plugin.Admit(ctx, a, o) })
	})
}

type validatingWebhooks struct {
	*admission.Handler
	webhooks webhooks[*validating.Plugin]
}

var _ admission.ValidationInterface = &validatingWebhooks{}

func newValidatingWebhooks(config Config) *validatingWebhooks {
	build := func() (*validating.Plugin, *generic.Webhook, error) {
		p, err := validating.NewValidatingAdmissionWebhook(io.Reader(nil))
		if err != nil {
			return nil, nil, err
		}
		return p, p.Webhook, nil
	}
	return &validatingWebhooks{
		Handler: handles(admission.Connect, admission.Create, admission.Delete, admission.Update),
		webhooks: webhooks[*validating.Plugin]{
			config: config, fingerprints: fingerprintOf(config.Set.ValidatingWebhookConfigurations), build: build,
			instances: lru.New(maxWebhookClusters),
			rules:     hookRules(config.Set.ValidatingWebhookConfigurations),
		},
	}
}

// Validate implements admission.ValidationInterface.
func (w *validatingWebhooks) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if isReview(a) {
		return nil
	}
	return w.webhooks.call(ctx, a, func(plugin *validating.Plugin) error { return plugin.Validate(ctx, a, o) })
}
