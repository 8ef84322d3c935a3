package admission

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// storedObjects is a client that reads and writes objects in memory, which informers may not have.
type storedObjects struct {
	kubernetes.Interface
	corev1client.CoreV1Interface
	namespaces map[string]*corev1.Namespace
	quotas     map[string]*corev1.ResourceQuota
	// failures are the errors of the next writes of quotas.
	failures []error
}

func (s *storedObjects) CoreV1() corev1client.CoreV1Interface { return s }

func (s *storedObjects) Namespaces() corev1client.NamespaceInterface {
	return storedNamespaces{stored: s}
}

type storedNamespaces struct {
	corev1client.NamespaceInterface
	stored *storedObjects
}

func (s storedNamespaces) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	if found, ok := s.stored.namespaces[name]; ok {
		return found, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
}

// storedCluster is a client that reads a LogicalCluster, which informers do not have.
type storedCluster struct {
	dynamic.NamespaceableResourceInterface
	cluster *unstructured.Unstructured
}

func (s storedCluster) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return s
}

func (s storedCluster) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	if s.cluster == nil {
		return nil, apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), corev1alpha1.LogicalClusterName)
	}
	return s.cluster, nil
}

func TestObjectsAreCreatedInClustersAndNamespacesThatExist(t *testing.T) {
	namespace := func(name string, phase corev1.NamespacePhase) *corev1.Namespace {
		return objecttest.In("team", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: phase}})
	}
	clusters := at("root", "root:team", "root:deleting", "root:terminating", "root:deleted")
	for _, obj := range clusters {
		if lc, ok := obj.(*corev1alpha1.LogicalCluster); ok {
			switch logicalcluster.Of(lc) {
			case "deleting":
				lc.Status.Phase = corev1alpha1.LogicalClusterPhaseDeleting
				fallthrough
			case "deleted":
				now := metav1.Now()
				lc.DeletionTimestamp = &now
			case "terminating":
				now := metav1.Now()
				lc.DeletionTimestamp, lc.Status.Terminators = &now, []corev1alpha1.LogicalClusterTerminator{"root:x"}
			}
		}
	}
	namespaces, namespaceKind := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "Namespace"
	clusterScoped := write{group: "example.org", object: `{}`}.attributes(t, "Widget")
	in1 := func(namespace string) admission.Attributes {
		return write{group: "example.org", object: "metadata: {namespace: " + namespace + "}"}.attributes(t, "Widget")
	}
	const absent = `403 Forbidden: logical cluster "absent" does not exist: create its LogicalCluster object first`
	for name, test := range map[string]struct {
		cluster logicalcluster.Name
		a       admission.Attributes
		stored  *unstructured.Unstructured // the LogicalCluster in the storage
		want    string
		cause   metav1.CauseType
	}{
		"an object in a cluster is created":                         {"team", clusterScoped, nil, "", ""},
		"an object in a cluster that does not exist is refused":     {"absent", clusterScoped, nil, absent, ""},
		"a LogicalCluster in such a cluster is created":             {"absent", write{group: "core.kcp.io", object: `{}`}.attributes(t, "LogicalCluster"), nil, "", ""},
		"a review in such a cluster is admitted":                    {"absent", write{group: "authorization.k8s.io", object: `{}`}.attributes(t, "Widget"), nil, "", ""},
		"system clusters have no LogicalCluster":                    {logicalcluster.SystemCRDs, clusterScoped, nil, "", ""},
		"a cluster that another server has just created exists":     {"absent", clusterScoped, &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "cluster"}}}, "", ""},
		"a cluster whose terminators still run takes objects":       {"terminating", clusterScoped, nil, "", ""},
		"a cluster whose content is being deleted takes no objects": {"deleting", clusterScoped, nil, `403 Forbidden: the logical cluster "deleting" is being deleted`, logicalcluster.TerminatingCause},
		"a cluster that was just deleted takes no objects":          {"deleted", clusterScoped, nil, `403 Forbidden: the logical cluster "deleted" is being deleted`, logicalcluster.TerminatingCause},
		"an object in a namespace is created":                       {"team", in1("active"), nil, "", ""},
		"an object in a namespace that does not exist is refused":   {"team", in1("absent"), nil, `404 NotFound: namespaces "absent" not found`, ""},
		"an object in a namespace that is terminating is refused": {"team", in1("terminating"), nil,
			"403 Forbidden: unable to create new content in namespace terminating because it is being terminated", corev1.NamespaceTerminatingCause},
		"a namespace that another server has just created exists":   {"team", in1("stored"), nil, "", ""},
		"a namespace that has just been created again exists":       {"team", in1("recreated"), nil, "", ""},
		"a namespace that terminates by its timestamp only refuses": {"team", in1("deleted"), nil, "403 Forbidden: unable to create new content in namespace deleted because it is being terminated", corev1.NamespaceTerminatingCause},
		"a default namespace cannot be deleted":                     {"team", deletion(namespaces, namespaceKind, "kube-system"), nil, "403 Forbidden: this namespace may not be deleted", ""},
		"another namespace is deleted":                              {"team", deletion(namespaces, namespaceKind, "active"), nil, "", ""},
		"a default namespace is deleted with its cluster":           {"terminating", deletion(namespaces, namespaceKind, "default"), nil, "", ""},
		"a default namespace without a cluster is deleted":          {"absent", deletion(namespaces, namespaceKind, "default"), nil, "", ""},
		"an object with the name of a default namespace is deleted": {"team", deletion(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", "default"), nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			deleted := namespace("deleted", corev1.NamespaceActive)
			now := metav1.Now()
			deleted.DeletionTimestamp = &now
			config := newConfig(t, nil, append(clusters[:len(clusters):len(clusters)], namespace("active", corev1.NamespaceActive),
				namespace("terminating", corev1.NamespaceTerminating), namespace("recreated", corev1.NamespaceTerminating), deleted)...)
			config.Dynamic = storedCluster{cluster: test.stored}
			config.Kube = &storedObjects{namespaces: map[string]*corev1.Namespace{
				"stored": namespace("stored", corev1.NamespaceActive), "recreated": namespace("recreated", corev1.NamespaceActive),
				"terminating": namespace("terminating", corev1.NamespaceTerminating), "deleted": deleted,
			}}
			err := newLifecycle(config).Validate(in(t, test.cluster), test.a, nil)
			wantOutcome(t, test.a, err, test.want)
			if test.cause != "" && !apierrors.HasStatusCause(err, test.cause) {
				t.Errorf("got %#v, want the cause %s", err, test.cause)
			}
		})
	}
}
