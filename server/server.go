// Package server puts the steps of a request together and runs them: path, authentication, authorization, admission,
// REST storage, cluster-aware storage, and the controllers beside them.
package server

import (
	"context"
	"fmt"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/kcplane/kcp/server/builtin"
	"github.com/kcplane/kcp/server/kubeconfig"
	"github.com/kcplane/kcp/server/options"
	"github.com/kcplane/kcp/server/path"
	"github.com/kcplane/kcp/server/storage"
)

// Run serves until ctx ends. announce is called once, when the server is ready for requests.
func Run(ctx context.Context, opts options.Completed, announce func()) error {
	if err := fixFeatures(); err != nil {
		return err
	}
	backend, fatal, closeStorage, err := openStorage(ctx, opts)
	if err != nil {
		return err
	}
	defer closeStorage()
	tokens, err := kubeconfig.Load(opts.KubeconfigPath, opts.AdminTokenPath)
	if err != nil {
		return err
	}
	config, err := newConfig(opts, backend, tokens)
	if err != nil {
		return err
	}
	s, err := config.newServer()
	if err != nil {
		return err
	}
	ca, _ := config.generic.SecureServing.Cert.CurrentCertKeyContent()
	if err := tokens.Write(opts.KubeconfigPath, opts.ShardExternalURL, ca); err != nil {
		return err
	}
	s.GenericAPIServer.AddPostStartHookOrDie("kcp-announce", func(hook genericapiserver.PostStartHookContext) error {
		announce()
		return nil
	})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-fatal:
			cancel(fmt.Errorf("embedded etcd: %w", err))
		case <-ctx.Done():
		}
	}()
	if err := s.GenericAPIServer.PrepareRun().RunWithContext(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != context.Canceled {
		return cause
	}
	return nil
}

// fixFeatures sets the gates that the design of the server decides: it has no watch cache to estimate sizes from, and
// no peers of other versions.
func fixFeatures() error {
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{
		"SizeBasedListCostEstimate":           false,
		"DetectCacheInconsistency":            false,
		"ListFromCacheSnapshot":               false,
		"UnknownVersionInteroperabilityProxy": false,
		"APIServerIdentity":                   false,
	})
}

// config is everything that a server is made of.
type config struct {
	opts         options.Completed
	backend      *storage.Backend
	tokens       *kubeconfig.Tokens
	generic      *genericapiserver.Config
	controlPlane *controlplaneapiserver.Config
	definitions  generic.RESTOptionsGetter
}

func newConfig(opts options.Completed, backend *storage.Backend, tokens *kubeconfig.Tokens) (*config, error) {
	c := &config{opts: opts, backend: backend, tokens: tokens}
	schemes := []*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme}
	generic, sharedInformers, storageFactory, err := controlplaneapiserver.BuildGenericConfig(opts.Generic, schemes, builtin.Resources(), generatedopenapi.GetOpenAPIDefinitions, nil)
	if err != nil {
		return nil, err
	}
	c.generic = generic
	c.definitions = c.definitionOptions()
	generic.RESTOptionsGetter = backend.BuiltIn(generic.RESTOptionsGetter)
	c.controlPlane, _, err = controlplaneapiserver.CreateConfig(opts.Generic, generic, sharedInformers, nil, storageFactory, webhook.NewDefaultServiceResolver(), nil)
	if err != nil {
		return nil, err
	}
	generic.Authentication.Authenticator = union.New(bearertoken.New(tokens), generic.Authentication.Authenticator)
	generic.Authorization.Authorizer = authorizerfactory.NewPrivilegedGroups("system:masters")
	generic.DisabledPostStartHooks.Insert("start-legacy-token-tracking-controller", "start-cluster-authentication-info-controller")
	generic.BuildHandlerChainFunc = func(api http.Handler, g *genericapiserver.Config) http.Handler {
		return path.WithCluster(genericapiserver.DefaultBuildHandlerChain(api, g), g.Serializer)
	}
	generic.AddReadyzChecks(healthz.NamedCheck("etcd", func(r *http.Request) error { return backend.Ping(r.Context()) }))
	return c, nil
}

// definitionOptions are the storage options of types outside of the built-in scheme: definitions and custom resources.
func (c *config) definitionOptions() generic.RESTOptionsGetter {
	etcd := *c.opts.Generic.Etcd
	etcd.StorageConfig.Codec = apiextensionsapiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
	etcd.StorageConfig.EncodeVersioner = runtime.NewMultiGroupVersioner(apiextensionsv1.SchemeGroupVersion, schema.GroupKind{Group: apiextensionsv1.GroupName})
	return etcd.CreateRESTOptionsGetter(&serveroptions.SimpleStorageFactory{StorageConfig: etcd.StorageConfig}, c.generic.ResourceTransformers)
}

func (c *config) newServer() (*controlplaneapiserver.Server, error) {
	completed := c.controlPlane.Complete()
	s, err := completed.New("kcp", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(c.generic.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	providers := builtin.Providers(completed, nil, c.generic.Authentication.Authenticator, client.Discovery())
	if err := s.InstallAPIs(providers...); err != nil {
		return nil, fmt.Errorf("installing the built-in types: %w", err)
	}
	return s, nil
}
