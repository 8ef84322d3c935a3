package admission

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// limitPlugins are the plugins whose refusals an operator of kcp wants to see: a tenant has reached a limit of the installation.
var limitPlugins = sets.New("core.kcp.io/LogicalClusterObjectCountLimit", "core.kcp.io/LogicalClusterLargeObjects")

// chained logs the refusals of a plugin. It does not call the plugin for resources of groups for which it does nothing: what upstream
// measures for each call would cost more than most plugins.
type chained struct {
	admission.Interface
	name   string
	groups []string // as in namedPlugin
}

func (c chained) concerns(a admission.Attributes) bool {
	return c.groups == nil || slices.Contains(c.groups, a.GetResource().Group)
}

// Admit implements admission.MutationInterface.
func (c chained) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	plugin, ok := c.Interface.(admission.MutationInterface)
	if !ok || !c.concerns(a) {
		return nil
	}
	err := plugin.Admit(ctx, a, o)
	if err != nil {
		c.log(ctx, a, err)
	}
	return err
}

// Validate implements admission.ValidationInterface.
func (c chained) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	plugin, ok := c.Interface.(admission.ValidationInterface)
	if !ok || !c.concerns(a) {
		return nil
	}
	err := plugin.Validate(ctx, a, o)
	if err != nil {
		c.log(ctx, a, err)
	}
	return err
}

// log writes the kind of an error and not its message, which may contain values of the object.
func (c chained) log(ctx context.Context, a admission.Attributes, err error) {
	cluster, _ := logicalcluster.NameFrom(ctx)
	logger := decisionlog.ForDecision(ctx)
	if limitPlugins.Has(c.name) {
		logger = decisionlog.ForChange(ctx, cluster)
	}
	if logger.Enabled() {
		logger.Info("Admission refused a request", decisionlog.Cluster, cluster, decisionlog.Step, c.name, decisionlog.Verb, a.GetOperation(),
			decisionlog.Resource, a.GetResource().GroupResource(), decisionlog.Namespace, a.GetNamespace(), decisionlog.Name, a.GetName(),
			decisionlog.Reason, apierrors.ReasonForError(err))
	}
}
