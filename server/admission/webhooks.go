package admission

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/informers/scoped"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/outbound"
)

// maxWebhookClusters bounds how many clusters have compiled webhooks in memory, for each kind of webhook.
const maxWebhookClusters = 1024

// webhooks calls the webhooks of the cluster of each request, or of the provider of what it has bound. A cluster that has configurations has an instance of
// upstream's plugin, made when they are used first and made again when they change. The others have nothing.
type webhooks[P any] struct {
	config       Config
	fingerprints func(context.Context, logicalcluster.Name) ([sha256.Size]byte, bool, error)
	build        func() (P, *generic.Webhook, error)

	mu        sync.Mutex // serialises the making of instances
	instances *lru.Cache // of instance[P], by source
}

type instance[P any] struct {
	fingerprint [sha256.Size]byte
	plugin      P
}

// plugin returns the plugin for a source of rules; ok is false if it has no webhooks.
func (w *webhooks[P]) plugin(ctx context.Context, from source) (plugin P, ok bool, err error) {
	fingerprint, any, err := w.fingerprints(ctx, from.rules)
	if err != nil || !any {
		return plugin, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if found, known := w.instances.Get(from); known && found.(instance[P]).fingerprint == fingerprint {
		return found.(instance[P]).plugin, true, nil
	}
	plugin, hook, err := w.build()
	if err != nil {
		return plugin, false, err
	}
	client, err := w.config.ClientFor(from.object)
	if err != nil {
		return plugin, false, err
	}
	hook.InspectFeatureGates(utilfeature.DefaultFeatureGate)
	hook.SetExternalKubeClientSet(client)
	hook.SetExternalKubeInformerFactory(scoped.New(w.config.Set, from.object, from.rules))
	hook.SetUnconditionalAuthorizer(w.config.Authorizer)
	hook.SetServiceResolver(outbound.NoServices{})
	hook.SetAuthenticationInfoResolverWrapper(w.config.WebhookAuthentication)
	if err := hook.ValidateInitialization(); err != nil {
		return plugin, false, fmt.Errorf("webhooks: %w", err)
	}
	w.instances.Add(from, instance[P]{fingerprint: fingerprint, plugin: plugin})
	return plugin, true, nil
}

// call asks the webhooks about a request: those of the provider for what is bound, and those of the cluster itself for everything else.
func (w *webhooks[P]) call(ctx context.Context, a admission.Attributes, ask func(P) error) error {
	from, err := sources(ctx, w.config, a)
	if err != nil {
		return err
	}
	plugin, ok, err := w.plugin(ctx, from[len(from)-1])
	if err != nil || !ok {
		return err
	}
	return ask(plugin)
}

// fingerprintOf returns a function that tells which configurations a cluster has, in which version.
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
			config: config, fingerprints: fingerprintOf(config.Set.MutatingWebhookConfigurations), build: build, instances: lru.New(maxWebhookClusters),
		},
	}
}

// Admit implements admission.MutationInterface.
func (w *mutatingWebhooks) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if isReview(a) {
		return nil
	}
	return w.webhooks.call(ctx, a, func(plugin *mutating.Plugin) error {
		return untampered(a, func() error { return plugin.Admit(ctx, a, o) })
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
			config: config, fingerprints: fingerprintOf(config.Set.ValidatingWebhookConfigurations), build: build, instances: lru.New(maxWebhookClusters),
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
