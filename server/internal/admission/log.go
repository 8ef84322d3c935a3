package admission

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// limitPlugins are the plugins whose refusals an operator of kcp wants to see: a tenant has reached a limit of the installation.
var limitPlugins = sets.New("core.kcp.io/LogicalClusterObjectCountLimit", "core.kcp.io/LogicalClusterLargeObjects")

// withLog logs the refusals of a plugin.
func withLog(plugin admission.Interface, name string) admission.Interface {
	return logged{plugin, name}
}

type logged struct {
	admission.Interface
	name string
}

// Admit implements admission.MutationInterface.
func (l logged) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	plugin, ok := l.Interface.(admission.MutationInterface)
	if !ok {
		return nil
	}
	err := plugin.Admit(ctx, a, o)
	if err != nil {
		l.log(ctx, a, err)
	}
	return err
}

// Validate implements admission.ValidationInterface.
func (l logged) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	plugin, ok := l.Interface.(admission.ValidationInterface)
	if !ok {
		return nil
	}
	err := plugin.Validate(ctx, a, o)
	if err != nil {
		l.log(ctx, a, err)
	}
	return err
}

// log writes the kind of an error and not its message, which may contain values of the object.
func (l logged) log(ctx context.Context, a admission.Attributes, err error) {
	cluster, _ := logicalcluster.NameFrom(ctx)
	logger := decisionlog.ForDecision(ctx)
	if limitPlugins.Has(l.name) {
		logger = decisionlog.ForChange(ctx, cluster)
	}
	if logger.Enabled() {
		logger.Info("Admission refused a request", decisionlog.Cluster, cluster, decisionlog.Step, l.name, decisionlog.Verb, a.GetOperation(),
			decisionlog.Resource, a.GetResource().GroupResource(), decisionlog.Namespace, a.GetNamespace(), decisionlog.Name, a.GetName(),
			decisionlog.Reason, apierrors.ReasonForError(err))
	}
}
