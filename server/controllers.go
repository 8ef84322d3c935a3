package server

import (
	"context"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/client-go/metadata"

	"github.com/kcplane/kcp/server/clients"
	"github.com/kcplane/kcp/server/controllers/clusterroleaggregation"
	"github.com/kcplane/kcp/server/controllers/controller"
	"github.com/kcplane/kcp/server/controllers/customresourcedefinition"
	"github.com/kcplane/kcp/server/controllers/garbagecollector"
	"github.com/kcplane/kcp/server/controllers/logicalcluster"
	"github.com/kcplane/kcp/server/controllers/namespace"
	"github.com/kcplane/kcp/server/controllers/resourcequota"
	"github.com/kcplane/kcp/server/controllers/rootca"
	"github.com/kcplane/kcp/server/controllers/serviceaccount"
	"github.com/kcplane/kcp/server/controllers/serviceaccounttoken"
	"github.com/kcplane/kcp/server/controllers/workspace"
)

// startControllers runs every controller until ctx ends. Each serves all logical clusters.
func (c *config) startControllers(ctx context.Context) error {
	meta, err := metadata.NewForConfig(clients.ForContext(c.loopback))
	if err != nil {
		return err
	}
	definitions, err := apiextensionsclient.NewForConfig(clients.ForContext(c.loopback))
	if err != nil {
		return err
	}
	ca, _ := c.generic.SecureServing.Cert.CurrentCertKeyContent()
	for _, ctl := range []*controller.Controller{
		serviceaccount.New(c.set, c.kube),
		rootca.New(c.set, c.kube, ca),
		serviceaccounttoken.New(c.set, c.kube, c.secretIssuer, ca),
		clusterroleaggregation.New(c.set, c.kube),
		customresourcedefinition.New(c.set, definitions.CustomResourceDefinitions(), meta),
		namespace.New(c.set, c.kube, meta, c.discovery.Resources),
		logicalcluster.New(logicalcluster.Inputs{
			Set: c.set, Dynamic: c.dynamic, Metadata: meta, Resources: c.discovery.Resources, ExternalURL: c.opts.ShardExternalURL,
		}),
		workspace.New(workspace.Inputs{Set: c.set, Dynamic: c.dynamic, Scheduler: c.scheduler}),
	} {
		c.background.Go(func() { ctl.Run(ctx) })
	}
	quotas := resourcequota.New(c.set, c.kube, meta, c.discovery.Resources)
	c.background.Go(func() { quotas.Run(ctx) })
	collector := garbagecollector.New(meta, c.discovery, quotas.Deleted)
	c.custom.OnChange(collector.ResourcesChanged)
	c.background.Go(func() { collector.Run(ctx) })
	return nil
}
