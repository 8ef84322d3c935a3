package builtin

import (
	"context"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	"k8s.io/kubernetes/pkg/registry/authentication/tokenreview"
)

// authenticationProvider installs upstream's types, and evaluates TokenReviews in the logical cluster of their
// request: upstream's storage calls its authenticator without the context.
type authenticationProvider struct {
	authenticationrest.RESTStorageProvider
}

func (p authenticationProvider) NewRESTStorage(source serverstorage.APIResourceConfigSource,
	getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := p.RESTStorageProvider.NewRESTStorage(source, getter)
	if err != nil {
		return info, err
	}
	storage := info.VersionedResourcesStorageMap[authenticationv1.SchemeGroupVersion.Version]
	if upstream, ok := storage["tokenreviews"].(*tokenreview.REST); ok {
		storage["tokenreviews"] = &tokenReviews{REST: upstream, authenticator: p.Authenticator, audiences: p.APIAudiences}
	}
	return info, nil
}

type tokenReviews struct {
	*tokenreview.REST
	authenticator authenticator.Request
	audiences     authenticator.Audiences
}

// Create implements rest.Creater.
func (r *tokenReviews) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
	options *metav1.CreateOptions) (runtime.Object, error) {
	inContext := authenticator.RequestFunc(func(request *http.Request) (*authenticator.Response, bool, error) {
		ctx := ctx
		if audiences, ok := authenticator.AudiencesFrom(request.Context()); ok {
			ctx = authenticator.WithAudiences(ctx, audiences)
		}
		return r.authenticator.AuthenticateRequest(request.WithContext(ctx))
	})
	return tokenreview.NewREST(inContext, r.audiences).Create(ctx, obj, validate, options)
}
