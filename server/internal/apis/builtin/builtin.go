// Package builtin defines the Kubernetes types that every logical cluster serves from compiled code.
package builtin

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/discovery"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // the installs register the types with the scheme
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	admissionregistrationrest "k8s.io/kubernetes/pkg/registry/admissionregistration/rest"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorizationrest "k8s.io/kubernetes/pkg/registry/authorization/rest"
	certificatesrest "k8s.io/kubernetes/pkg/registry/certificates/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	eventsrest "k8s.io/kubernetes/pkg/registry/events/rest"
)

// Resources returns the API resource configuration: one stable version of each group.
func Resources() *serverstorage.ResourceConfig {
	config := serverstorage.NewResourceConfig()
	config.EnableVersions(
		corev1.SchemeGroupVersion, rbacv1.SchemeGroupVersion, authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion,
		admissionregistrationv1.SchemeGroupVersion, certificatesv1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion,
		eventsv1.SchemeGroupVersion, schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"},
	)
	config.DisableResources(certificatesv1.SchemeGroupVersion.WithResource("clustertrustbundles"))
	return config
}

// Providers returns the storage providers for the built-in types of config, in the order of discovery. Rules resolves
// roles for the checks against privilege escalation; reviews authenticates the tokens of TokenReviews; registries
// receives those of the core group, of RBAC and of admissionregistration.k8s.io.
func Providers(
	config controlplaneapiserver.CompletedConfig, rules Roles, reviews authenticator.Request, client discovery.DiscoveryInterface,
	registries *Registries,
) []controlplaneapiserver.RESTStorageProvider {
	generic := config.Generic
	var az authorizer.Authorizer = generic.Authorization.Authorizer
	providers := []controlplaneapiserver.RESTStorageProvider{
		coreProvider{known{config.NewCoreGenericConfig(), registries}, config.ClusterAuthenticationInfo, rules},
		authenticationProvider{authenticationrest.RESTStorageProvider{
			Authenticator: reviews, APIAudiences: generic.Authentication.APIAudiences,
		}},
		authorizationrest.RESTStorageProvider{Authorizer: discreet(az), RuleResolver: generic.RuleResolver},
		certificatesrest.RESTStorageProvider{Authorizer: az, Generic: true},
		coordinationrest.RESTStorageProvider{},
		rbacProvider{authorizer: az, rules: rules, registries: registries},
		known{admissionregistrationrest.RESTStorageProvider{Authorizer: az, DiscoveryClient: client}, registries},
		eventsrest.RESTStorageProvider{TTL: config.EventTTL},
	}
	for i, p := range providers {
		providers[i] = servedVersions{p}
	}
	return providers
}
