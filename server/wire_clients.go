package server

import (
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/server/internal/informers/clusterclient"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// clients are the clients with which the server calls itself.
type clients struct {
	// loopback calls the server as a privileged user, without a logical cluster.
	loopback *rest.Config
	// These clients call the logical cluster of each call's context.
	kube        kubernetes.Interface
	dynamic     dynamic.Interface
	metadata    metadata.Interface
	definitions apiextensionsclient.ApiextensionsV1Interface
}

func newClients(loopback *rest.Config) (*clients, error) {
	c := &clients{loopback: rest.CopyConfig(loopback)}
	c.loopback.QPS = -1
	config := clusterclient.ForContext(c.loopback)
	plain := rest.CopyConfig(c.loopback)
	plain.ContentType = runtime.ContentTypeJSON
	var err error
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if c.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	if c.definitions, err = apiextensionsclient.NewForConfig(config); err != nil {
		return nil, err
	}
	if c.dynamic, err = dynamic.NewForConfig(clusterclient.ForContext(plain)); err != nil {
		return nil, err
	}
	return c, nil
}

// in returns a client of one logical cluster.
func (c *clients) in(cluster logicalcluster.Name) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(clusterclient.ForCluster(c.loopback, logicalcluster.Cluster{Name: cluster}))
}
