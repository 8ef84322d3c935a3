package server

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	etcdmetrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/apiserver/pkg/util/webhook"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/apis/builtin"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/request/slowclient"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/options"
)

// upstream is the configuration of Kubernetes' control plane.
type upstream struct {
	generic      *genericapiserver.Config
	controlPlane *controlplaneapiserver.Config
	// definitionOptions store types outside of the built-in scheme: definitions and custom resources.
	definitionOptions generic.RESTOptionsGetter
	// secretIssuer signs the tokens in Secrets.
	secretIssuer serviceaccount.TokenGenerator
	// signers verify service account tokens; nil for a single shard.
	signers *authentication.Signers
	// rootCA contains the certificates with which service accounts verify the server.
	rootCA []byte
}

// newUpstream returns the configuration of upstream, with the cluster-aware storage.
func newUpstream(opts options.Completed, backend *storage.Backend, served *served) (*upstream, error) {
	accounts := opts.Generic.Authentication.ServiceAccounts
	accounts.OptionalTokenGetter = func(kubeinformers.SharedInformerFactory) serviceaccount.ServiceAccountTokenGetter {
		return authentication.Getter{Objects: &served.registries, Label: served.labelSecret}
	}
	signers, err := newSigners(opts)
	if err != nil {
		return nil, err
	}
	if signers != nil {
		accounts.KeyFiles, accounts.ExternalPublicKeysGetter = nil, signers
	}
	schemes := []*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme}
	g, sharedInformers, storageFactory,
		err := controlplaneapiserver.BuildGenericConfig(opts.Generic, schemes, builtin.Resources(), generatedopenapi.GetOpenAPIDefinitions, nil)
	if err != nil {
		return nil, err
	}
	g.EffectiveVersion = linkedVersion{g.EffectiveVersion}
	g.RequestInfoResolver = customresources.RequestInfo{RequestInfoResolver: genericapiserver.NewRequestInfoResolver(g)}
	g.SecureServing.Listener = slowclient.Listener(g.SecureServing.Listener, opts.StalledClientTimeout)
	otel.SetTracerProvider(g.TracerProvider) // the client of etcd uses the global provider
	etcd := *opts.Generic.Etcd
	etcd.StorageConfig.Codec = apiextensionsapiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
	etcd.StorageConfig.EncodeVersioner = runtime.NewMultiGroupVersioner(apiextensionsv1.SchemeGroupVersion,
		schema.GroupKind{Group: apiextensionsv1.GroupName})
	definitionOptions := etcd.CreateRESTOptionsGetter(&serveroptions.SimpleStorageFactory{StorageConfig: etcd.StorageConfig},
		g.ResourceTransformers)
	g.RESTOptionsGetter = backend.BuiltIn(g.RESTOptionsGetter)
	etcdmetrics.SetStorageMonitorGetter(backend.Monitors)
	controlPlane, _, err := controlplaneapiserver.CreateConfig(opts.Generic, g, sharedInformers, nil, storageFactory,
		webhook.NewDefaultServiceResolver(), nil)
	if err != nil {
		return nil, err
	}
	issuer := authentication.Generator{TokenGenerator: controlPlane.ServiceAccountIssuer}
	if opts.Sharding.Enabled() {
		issuer.Shard = opts.ShardName
	}
	controlPlane.ServiceAccountIssuer = issuer
	secretIssuer, err := newSecretIssuer(opts.SecretTokenKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--service-account-private-key-file: %s: %w", opts.SecretTokenKeyFile, err)
	}
	// These hooks write to one cluster for components that do not exist in kcp.
	g.DisabledPostStartHooks.Insert("start-legacy-token-tracking-controller", "start-cluster-authentication-info-controller")
	rootCA := opts.RootCA
	if len(rootCA) == 0 {
		rootCA, _ = g.SecureServing.Cert.CurrentCertKeyContent()
	}
	return &upstream{generic: g, controlPlane: controlPlane, definitionOptions: definitionOptions,
		secretIssuer: secretIssuer, rootCA: rootCA, signers: signers}, nil
}

// newSigners returns the keys that verify service account tokens; nil for a single shard.
func newSigners(opts options.Completed) (*authentication.Signers, error) {
	if !opts.Sharding.Enabled() {
		return nil, nil
	}
	accounts := opts.Generic.Authentication.ServiceAccounts
	signers, err := authentication.NewSigners(authentication.SignersConfig{
		Shard: opts.ShardName, Files: accounts.KeyFiles, Clock: clock.RealClock{},
		TokenLifetime:  cmp.Or(accounts.MaxExpiration, longestLifetime),
		SecretsAreRead: accounts.Lookup && !slices.Contains(accounts.Issuers, serviceaccount.LegacyIssuer),
	})
	if err != nil {
		return nil, fmt.Errorf("--service-account-key-file: %w", err)
	}
	return signers, nil
}

// longestLifetime is how long tokens of a former shard count that does not limit the lifetime of tokens.
const longestLifetime = 365 * 24 * time.Hour

// newSecretIssuer returns the generator of tokens in Secrets, with the issuer name of Kubernetes.
func newSecretIssuer(keyFile string) (serviceaccount.TokenGenerator, error) {
	key, err := keyutil.PrivateKeyFromFile(keyFile)
	if err != nil {
		return nil, err
	}
	legacy, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return nil, err
	}
	return authentication.Generator{TokenGenerator: legacy}, nil
}
