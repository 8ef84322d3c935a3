// Package operatortest is a cluster for tests of reconcilers, which counts writes and issues certificates. It is in memory, without
// validation and defaults, or at an API server.
package operatortest

import (
	"context"
	"encoding/base64"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/scheme"
)

// Namespace of the objects.
const Namespace = "team"

// Cluster is a client for the cluster, with recorded events and a counter of writes.
type Cluster struct {
	client.Client
	Events *events.FakeRecorder
	writes atomic.Int64
}

// New returns a cluster in memory with objects.
func New(objects ...client.Object) *Cluster {
	for _, object := range objects {
		if object.GetNamespace() == "" {
			object.SetNamespace(Namespace)
		}
		if object.GetUID() == "" {
			object.SetUID(types.UID("uid-" + object.GetName()))
		}
		if object.GetGeneration() == 0 {
			object.SetGeneration(1)
		}
	}
	return At(withReads(fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).WithTypeConverters(converters()...).
		WithStatusSubresource(
			&v1alpha1.RootShard{},
			&v1alpha1.Shard{},
			&v1alpha1.FrontProxy{},
			&v1alpha1.CacheServer{},
			&v1alpha1.VirtualWorkspace{},
			&v1alpha1.Kubeconfig{},
			&v1alpha1.EtcdCluster{},
			&v1alpha1.EtcdBackup{},
			&v1alpha1.EtcdBackupSchedule{},
			&batchv1.Job{},
			&certmanager.Certificate{},
			&appsv1.StatefulSet{},
		).
		Build()))
}

// converters have the schemas for server-side apply. Parsing them takes longer than most tests, so they are shared.
var converters = sync.OnceValue(func() []managedfields.TypeConverter {
	return []managedfields.TypeConverter{
		applyconfigurations.NewTypeConverter(clientgoscheme.Scheme),
		managedfields.NewDeducedTypeConverter(),
	}
})

// At returns a cluster with a client.
func At(c client.WithWatch) *Cluster {
	cluster := &Cluster{Events: events.NewFakeRecorder(1000)}
	cluster.Client = interceptor.NewClient(c, cluster.count())
	return cluster
}

// count counts writes, except those of this package.
func (c *Cluster) count() interceptor.Funcs {
	return interceptor.Funcs{
		Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			c.writes.Add(1)
			return w.Apply(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			c.writes.Add(1)
			return w.Patch(ctx, o, patch, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			c.writes.Add(1)
			return w.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			c.writes.Add(1)
			return w.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	}
}

// WritesNothing calls do, and fails the test if it writes anything.
func (c *Cluster) WritesNothing(t testing.TB, do func()) {
	t.Helper()
	c.Writes()
	do()
	if n := c.Writes(); n != 0 {
		t.Errorf("%d writes, though nothing has changed", n)
	}
}

// Writes returns the number of writes since the last call.
func (c *Cluster) Writes() int64 { return c.writes.Swap(0) }

// Reconcile reconciles the object of a name once, and fails the test on an error.
func (c *Cluster) Reconcile(t testing.TB, r reconcile.Reconciler, name string) ctrl.Result {
	t.Helper()
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: Key(name)})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// MustCreate creates objects, and fails the test on an error.
func (c *Cluster) MustCreate(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// MustUpdate updates an object, and fails the test on an error.
func (c *Cluster) MustUpdate(t testing.TB, object client.Object) {
	t.Helper()
	if err := c.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// MustUpdateStatus updates the status of an object, and fails the test on an error.
func (c *Cluster) MustUpdateStatus(t testing.TB, object client.Object) {
	t.Helper()
	if err := c.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// Key returns the key of an object in Namespace.
func Key(name string) client.ObjectKey { return client.ObjectKey{Namespace: Namespace, Name: name} }

// Read gets an object by name, and fails the test if it does not exist.
func Read[T client.Object](t testing.TB, c *Cluster, name string, object T) T {
	t.Helper()
	if err := c.Get(t.Context(), Key(name), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// Issue issues all certificates that are not issued, as cert-manager does.
func (c *Cluster) Issue(t testing.TB) {
	t.Helper()
	list := &certmanager.CertificateList{}
	if err := c.List(t.Context(), list, client.InNamespace(Namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		certificate := &list.Items[i]
		if conditions.Unready(certificate) == "" {
			continue
		}
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: certificate.Namespace, Name: certificate.Spec.SecretName},
			Data:       map[string][]byte{"tls.crt": PEM(certificate.Name), "tls.key": []byte("key of " + certificate.Name), "ca.crt": PEM("root")},
		}
		if template := certificate.Spec.SecretTemplate; template != nil {
			secret.Labels = template.Labels
		}
		if err := c.Create(t.Context(), secret); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		certificate.Status = certmanager.CertificateStatus{
			Conditions: []certmanager.CertificateCondition{
				{Type: "Ready", Status: cmmeta.ConditionTrue, ObservedGeneration: certificate.Generation},
			},
			NotAfter: new(metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))), Revision: new(1),
		}
		c.MustUpdateStatus(t, certificate)
	}
}

// Roll makes all pods of a StatefulSet ready, as its controller and the kubelet do.
func (c *Cluster) Roll(t testing.TB, name string) {
	t.Helper()
	set := Read(t, c, name, &appsv1.StatefulSet{})
	n := *set.Spec.Replicas
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: n, ReadyReplicas: n,
		UpdatedReplicas: n, AvailableReplicas: n}
	c.MustUpdateStatus(t, set)
}

// PEM returns data that looks like a certificate.
func PEM(name string) []byte {
	return fmt.Appendf(nil, "-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n", encode(name))
}

func encode(name string) string { return base64.StdEncoding.EncodeToString([]byte(name)) }
