// Package rootca publishes the CA certificates of the server as the ConfigMap kube-root-ca.crt in every namespace of every logical cluster.
package rootca

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
)

// Name of the ConfigMaps.
const Name = informers.RootCAConfigMap

const (
	dataKey = "ca.crt"
	// descriptionAnnotation and its text are those of Kubernetes.
	descriptionAnnotation = "kubernetes.io/description"
	description           = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the " +
		"internal service " +
		"IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)

// ConfigMap returns the ConfigMap of a namespace; ca is in PEM.
func ConfigMap(namespace string, ca []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Name, Annotations: map[string]string{descriptionAnnotation: description}},
		Data:       map[string]string{dataKey: string(ca)},
	}
}

// Inputs of the controller. The client reaches the cluster in each call's context.
type Inputs struct {
	Set  *informers.Set
	Kube kubernetes.Interface
	// CA is in PEM.
	CA []byte
}

type reconciler struct {
	Inputs
	controller *runner.Controller
}

// New returns the controller. Its keys are namespaces.
func New(in Inputs) *runner.Controller {
	r := &reconciler{Inputs: in}
	c := runner.New("rootca", 4, r.reconcile)
	r.controller = c
	c.Watch(in.Set.Namespaces.Informer)
	c.WatchMapped(in.Set.ConfigMaps.Informer, runner.NamespaceOfNamed(Name))
	return c
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	namespace, err := r.Set.Namespaces.Get(key.Cluster, "", key.Name)
	if err != nil || namespace.Status.Phase != corev1.NamespaceActive {
		return runner.IgnoreNotFound(err)
	}
	if !r.controller.Restores(r.Set, key) {
		return nil
	}
	configMaps := r.Kube.CoreV1().ConfigMaps(key.Name)
	current, err := r.Set.ConfigMaps.Get(key.Cluster, key.Name, Name)
	if apierrors.IsNotFound(err) { // that of a default namespace is stored with it, but its event may arrive later
		r.Set.ConfigMaps.Current(ctx, key.Cluster)
		current, err = r.Set.ConfigMaps.Get(key.Cluster, key.Name, Name)
	}
	if apierrors.IsNotFound(err) {
		_, err := configMaps.Create(ctx, ConfigMap(key.Name, r.CA), metav1.CreateOptions{})
		return runner.IgnoreExistsOrTerminating(err)
	}
	if err != nil || isCurrent(current, r.CA) {
		return err
	}
	changed := current.DeepCopy()
	changed.Data = map[string]string{dataKey: string(r.CA)}
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, descriptionAnnotation, description)
	_, err = configMaps.Update(ctx, changed, metav1.UpdateOptions{})
	return runner.IgnoreExistsOrTerminating(err)
}

// isCurrent reports whether a ConfigMap has the CA and nothing else.
func isCurrent(cm *corev1.ConfigMap, ca []byte) bool {
	return len(cm.Data) == 1 && cm.Data[dataKey] == string(ca) && cm.Annotations[descriptionAnnotation] != ""
}
