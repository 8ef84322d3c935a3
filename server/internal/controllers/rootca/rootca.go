// Package rootca publishes the certificates that the server is verified with, as the ConfigMap kube-root-ca.crt in every
// namespace of every logical cluster.
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
const Name = "kube-root-ca.crt"

const (
	key = "ca.crt"
	// descriptionAnnotation and its text are those that people know from Kubernetes.
	descriptionAnnotation = "kubernetes.io/description"
	description           = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the " +
		"internal service " +
		"IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)

// ConfigMap returns what a namespace gets; ca is in PEM.
func ConfigMap(namespace string, ca []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Name, Annotations: map[string]string{descriptionAnnotation: description}},
		Data:       map[string]string{key: string(ca)},
	}
}

// New returns the controller. Its keys are namespaces; ca is in PEM.
func New(set *informers.Set, kube kubernetes.Interface, ca []byte) *runner.Controller {
	c := runner.New("rootca", 4, func(ctx context.Context, k informers.Key) error {
		namespace, err := set.Namespaces.Get(k.Cluster, "", k.Name)
		if err != nil || namespace.Status.Phase != corev1.NamespaceActive {
			return runner.IgnoreNotFound(err)
		}
		configMaps := kube.CoreV1().ConfigMaps(k.Name)
		current, err := set.ConfigMaps.Get(k.Cluster, k.Name, Name)
		if apierrors.IsNotFound(err) {
			_, err := configMaps.Create(ctx, ConfigMap(k.Name, ca), metav1.CreateOptions{})
			return runner.IgnoreGoing(err)
		}
		if err != nil || (len(current.Data) == 1 && current.Data[key] == string(ca) && current.Annotations[descriptionAnnotation] != "") {
			return err
		}
		changed := current.DeepCopy()
		changed.Data = map[string]string{key: string(ca)}
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, descriptionAnnotation, description)
		_, err = configMaps.Update(ctx, changed, metav1.UpdateOptions{})
		return runner.IgnoreGoing(err)
	})
	c.Watch(set.Namespaces.Informer)
	c.WatchMapped(set.ConfigMaps.Informer, runner.NamespaceOfNamed(Name))
	return c
}
