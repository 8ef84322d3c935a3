package workspaces

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// mapper maps the kinds of a view. A view of waiting logical clusters describes only LogicalClusters for all clusters together. It
// describes all other kinds for each cluster separately, so that mapper then uses the discovery of one of the clusters.
type mapper struct {
	meta.RESTMapper
	config *rest.Config
	client *http.Client
}

func newMapper(config *rest.Config, client *http.Client) (meta.RESTMapper, error) {
	all, err := apiutil.NewDynamicRESTMapper(config, client)
	return &mapper{all, config, client}, err
}

// RESTMapping implements meta.RESTMapper.
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	found, err := m.RESTMapper.RESTMapping(kind, versions...)
	if !meta.IsNoMatchError(err) {
		return found, err
	}
	cluster, listErr := m.anyCluster()
	if listErr != nil || cluster == "" {
		return nil, err // not a view of logical clusters
	}
	config := rest.CopyConfig(m.config)
	config.Host = strings.TrimSuffix(config.Host, all) + cluster
	inside, err := apiutil.NewDynamicRESTMapper(config, m.client)
	if err != nil {
		return nil, err
	}
	return inside.RESTMapping(kind, versions...)
}

// anyCluster returns the name of one logical cluster of the view, or "" if it has none.
func (m *mapper) anyCluster() (string, error) {
	response, err := m.client.Get(m.config.Host + "/apis/" + corev1alpha1.SchemeGroupVersion.String() + "/logicalclusters?limit=1")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("listing logical clusters: %s", response.Status)
	}
	list := &corev1alpha1.LogicalClusterList{}
	if err := json.NewDecoder(response.Body).Decode(list); err != nil || len(list.Items) == 0 {
		return "", err
	}
	return ClusterOf(&list.Items[0]), nil
}
