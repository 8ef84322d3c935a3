// Package admission holds the rules that a write must pass in its logical cluster. One chain serves all clusters: each
// plugin takes the cluster from the context.
package admission

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/informers"
)

// Config of the chain. Clients reach the cluster in the context of each call.
type Config struct {
	Set        *informers.Set
	Kube       kubernetes.Interface
	Dynamic    dynamic.Interface
	Authorizer authorizer.UnconditionalAuthorizer
}

// New returns the chain of plugins, in the order in which they see a request.
func New(config Config) (admission.Interface, error) {
	certificates, err := certificatePlugins(config.Authorizer)
	if err != nil {
		return nil, err
	}
	plugins := []admission.Interface{
		newLifecycle(config),
		logicalClusterRules{},
		reservedDefinitions{},
	}
	plugins = append(plugins, certificates...)
	return admission.NewChainHandler(plugins...), nil
}

var (
	logicalClusterResource = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters").GroupResource()
	definitionResource     = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	namespaceResource      = schema.GroupResource{Resource: "namespaces"}
)

// decode converts an object of a custom resource into its Go type.
func decode(obj runtime.Object, into any) error {
	u, ok := obj.(runtime.Unstructured)
	if !ok {
		return fmt.Errorf("unexpected type %T", obj)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.UnstructuredContent(), into)
}

func annotations(obj runtime.Object) map[string]string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return m.GetAnnotations()
}

func forbidden(a admission.Attributes, format string, args ...any) error {
	return admission.NewForbidden(a, fmt.Errorf(format, args...))
}

// errUnexpected is wrapped by errors about objects that no client can send.
var errUnexpected = errors.New("unexpected object")

func handles(operations ...admission.Operation) *admission.Handler {
	return admission.NewHandler(operations...)
}
