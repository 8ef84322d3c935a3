package defaultcontent

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/server/internal/controllers/rootca"
)

// The fields that the server sets, as the handlers of requests would record them. A ServiceAccount has none.
const (
	namespaceFields    = `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{}}}}`
	certificatesFields = `{"f:data":{".":{},"f:ca.crt":{}},"f:metadata":{"f:annotations":{".":{},"f:kubernetes.io/description":{}}}}`
	bindingFields      = `{"f:roleRef":{},"f:subjects":{}}`
)

// contentOf returns a default namespace of a logical cluster and the objects in it. ca is in PEM.
func contentOf(namespace string, ca []byte) []runtime.Object {
	return []runtime.Object{
		managed(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, corev1.SchemeGroupVersion, namespaceFields),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}},
		managed(rootca.ConfigMap(namespace, ca), corev1.SchemeGroupVersion, certificatesFields),
	}
}

// managed records that the server has set the fields of an object.
func managed[T interface {
	runtime.Object
	metav1.Object
}](obj T, version schema.GroupVersion, fields string) T {
	manager, _, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	now := metav1.Now()
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: version.String(), Time: &now,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}})
	return obj
}
