package builtin

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"
	configmapstore "k8s.io/kubernetes/pkg/registry/core/configmap/storage"

	"github.com/kcplane/kcp/server/internal/apis/derived"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
)

// coreProvider installs the core group, with the ConfigMap from which extension API servers learn how requests are
// authenticated.
type coreProvider struct {
	known
	trust clusterauthenticationtrust.ClusterAuthenticationInfo
	roles Roles
}

// shownConfigMaps adds that ConfigMap to those that a cluster stores.
type shownConfigMaps struct {
	*derived.Storage
	*configmapstore.REST
}

func (p coreProvider) NewRESTStorage(config serverstorage.APIResourceConfigSource,
	getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := p.known.NewRESTStorage(config, getter)
	if err != nil {
		return info, err
	}
	storage := info.VersionedResourcesStorageMap[corev1.SchemeGroupVersion.Version]
	stored, ok := storage["configmaps"].(*configmapstore.REST)
	if !ok {
		return info, fmt.Errorf("unexpected storage of ConfigMaps: %T", storage["configmaps"])
	}
	storage["configmaps"] = shownConfigMaps{&derived.Storage{
		Stored: stored, Resource: corev1.Resource("configmaps"), Reason: "the server derives it from its own configuration",
		Source: source[*corev1.ConfigMap]{list: p.configMaps},
		Append: func(list, obj runtime.Object) {
			l := list.(*core.ConfigMapList)
			l.Items = append(l.Items, *obj.(*core.ConfigMap))
		},
	}, stored}
	return info, nil
}

// configMaps returns the ConfigMap in namespace; no namespace means all.
func (p coreProvider) configMaps(ctx context.Context, namespace string) ([]*corev1.ConfigMap, error) {
	if namespace != "" && namespace != metav1.NamespaceSystem {
		return nil, nil
	}
	data, err := trustData(p.trust)
	if err != nil {
		return nil, err
	}
	shown := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem,
		Name: authorization.AuthenticationConfig}, Data: data}
	return []*corev1.ConfigMap{shown}, p.roles.Identify(ctx, shown, corev1.Resource("configmaps"))
}

// trustData returns the content of the ConfigMap as upstream writes it. It omits the certificate authority for client
// certificates of logical clusters: a server that trusts it would accept the users of every other cluster.
func trustData(trust clusterauthenticationtrust.ClusterAuthenticationInfo) (map[string]string, error) {
	data := map[string]string{}
	if trust.ClientCA != nil {
		if authorities := trust.ClientCA.CurrentCABundleContent(); len(authorities) > 0 {
			data["client-ca-file"] = string(authorities)
		}
	}
	if trust.RequestHeaderCA == nil {
		return data, nil
	}
	authorities := trust.RequestHeaderCA.CurrentCABundleContent()
	if len(authorities) == 0 {
		return data, nil
	}
	data["requestheader-client-ca-file"] = string(authorities)
	for key, values := range map[string]headerrequest.StringSliceProvider{
		"requestheader-username-headers": trust.RequestHeaderUsernameHeaders, "requestheader-uid-headers": trust.RequestHeaderUIDHeaders,
		"requestheader-group-headers":        trust.RequestHeaderGroupHeaders,
		"requestheader-extra-headers-prefix": trust.RequestHeaderExtraHeaderPrefixes,
		"requestheader-allowed-names":        trust.RequestHeaderAllowedNames,
	} {
		if values == nil || (key == "requestheader-uid-headers" && len(values.Value()) == 0) {
			continue
		}
		encoded, err := json.Marshal(values.Value())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		data[key] = string(encoded)
	}
	return data, nil
}
