package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// This file is about Secrets. The agent may read them only in namespaces that it created, so it cannot watch those of the whole cluster. It
// remembers what it has written, and lists them again from time to time.

const (
	// serviceAccount is that of the agent.
	serviceAccount = "agent"
	// accessTime is how long the API server may take to apply a new RoleBinding, and accessPause the time between two attempts.
	accessTime, accessPause = 10 * time.Second, 100 * time.Millisecond
)

var secretResource = corev1.SchemeGroupVersion.WithResource("secrets")

// access returns the RoleBinding that allows the agent to read Secrets and pods of a namespace.
func (s *syncer) access(metadata metav1.ObjectMeta) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"}, ObjectMeta: metadata,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: v1alpha1.NamespaceRole},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.Namespace, Name: serviceAccount}},
	}
}

// awaitAccess waits until the agent may read the Secrets of a namespace.
func (s *syncer) awaitAccess(ctx context.Context, namespace string) error {
	if s.secrets.isOpen(namespace) {
		return nil
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, accessPause, accessTime, true, func(ctx context.Context) (bool, error) {
		_, last = s.localAny.Resource(secretResource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsForbidden(last) {
			return false, nil
		}
		return last == nil, last
	})
	if err != nil {
		if last != nil {
			err = last
		}
		return fmt.Errorf("access to the Secrets of namespace %s: %w", namespace, err)
	}
	s.secrets.open(namespace)
	return nil
}

// secrets are those that the agent has created, by workload. The zero value has none.
type secrets struct {
	mu         sync.Mutex // guards all below
	byWorkload map[string]*unstructured.Unstructured
	// accessible are the namespaces that the agent may read.
	accessible map[string]bool
}

func (s *secrets) isOpen(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accessible[namespace]
}

func (s *secrets) open(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accessible == nil {
		s.accessible = map[string]bool{}
	}
	s.accessible[namespace] = true
}

func (s *secrets) at(workload string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byWorkload[workload]
}

// set replaces the Secret of a workload. Nil removes it.
func (s *secrets) set(workload string, secret *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(workload, secret)
}

// put is set with the lock.
func (s *secrets) put(workload string, secret *unstructured.Unstructured) {
	if secret == nil {
		delete(s.byWorkload, workload)
		return
	}
	secret = secret.DeepCopy()
	secret.SetManagedFields(nil)
	if s.byWorkload == nil {
		s.byWorkload = map[string]*unstructured.Unstructured{}
	}
	s.byWorkload[workload] = secret
}

// forget removes what is known of a namespace.
func (s *secrets) forget(namespace string) {
	s.replace(namespace, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.accessible, namespace)
}

// replace replaces the Secrets of a namespace by those of a list at once, and returns the workloads that had one before, or have one now.
func (s *secrets) replace(namespace string, list []unstructured.Unstructured) (workloads []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for workload, secret := range s.byWorkload {
		if secret.GetNamespace() == namespace {
			delete(s.byWorkload, workload)
			workloads = append(workloads, workload)
		}
	}
	for i := range list {
		workload := list[i].GetLabels()[workloadLabel]
		s.put(workload, &list[i])
		workloads = append(workloads, workload)
	}
	slices.Sort(workloads)
	return slices.Compact(workloads)
}

// listSecrets reads the Secrets that the agent has created, and reconciles them: what is on the cluster may be something else.
func (s *syncer) listSecrets(ctx context.Context) {
	for _, o := range s.namespaces.GetStore().List() {
		namespace, ok := o.(*unstructured.Unstructured)
		if !ok || ctx.Err() != nil || !slices.Contains(resourcesOf(namespace), resourceText(secretResource)) ||
			!strings.HasPrefix(namespace.GetAnnotations()[ownerAnnotation], s.owner("")) {
			continue
		}
		if err := s.listSecretsOf(ctx, namespace); err != nil && ctx.Err() == nil {
			klog.Background().Info("Secrets not read, trying again later", "namespace", namespace.GetName(), "error", err.Error())
		}
	}
}

func (s *syncer) listSecretsOf(ctx context.Context, namespace *unstructured.Unstructured) error {
	binding := s.access(metav1.ObjectMeta{Name: guard, Namespace: namespace.GetName(),
		Annotations: map[string]string{ownerAnnotation: namespace.GetAnnotations()[ownerAnnotation]}})
	if err := s.applyGuard(ctx, namespace.GetName(), rbacv1.SchemeGroupVersion.WithResource("rolebindings"), binding); err != nil {
		return err
	}
	if err := s.awaitAccess(ctx, namespace.GetName()); err != nil {
		return err
	}
	list, err := s.localAny.Resource(secretResource).Namespace(namespace.GetName()).List(ctx,
		metav1.ListOptions{LabelSelector: v1alpha1.ClusterLabel + "=" + s.options.Cluster})
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(list.Items, func(u unstructured.Unstructured) bool { return !s.mayBeOf(&u, u.GetLabels()[workloadLabel]) })
	for _, workload := range s.secrets.replace(namespace.GetName(), own) {
		s.queue.Add(item{false, workload})
		s.queue.Add(item{true, assignmentOf(workload)})
	}
	return nil
}

// keepListingSecrets lists the Secrets from time to time until ctx ends.
func (s *syncer) keepListingSecrets(ctx context.Context) {
	for sleep(ctx, guardPeriod); ctx.Err() == nil; sleep(ctx, guardPeriod) {
		s.listSecrets(ctx)
	}
}

// resourceText returns the form in which the annotation of a namespace has a resource.
func resourceText(r schema.GroupVersionResource) string {
	return r.Resource + "." + r.Version + "." + r.Group
}
