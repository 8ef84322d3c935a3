package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	quotaapi "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// ClusterScopedQuota marks a ResourceQuota in ClusterQuotaNamespace that counts the objects of the whole cluster.
const (
	ClusterScopedQuota    = "experimental.quota.kcp.io/cluster-scoped"
	ClusterQuotaNamespace = "admin"
)

// quota charges new objects to the quotas of their namespace and cluster before they are stored. The usage is in the status of the quota
// and is written with a precondition: if two requests compete for the last unit, the write of one fails with a conflict and is tried again.
type quota struct {
	*admission.Handler
	config Config
}

var _ admission.ValidationInterface = &quota{}

// How often, and with which pause, a request tries to charge a quota that other requests change concurrently.
const (
	quotaAttempts = 20
	quotaPause    = 5 * time.Millisecond
)

func newQuota(config Config) *quota {
	return &quota{Handler: handles(admission.Create), config: config} // quotas limit the number of objects, which updates do not change
}

// Validate implements admission.ValidationInterface.
func (q *quota) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || isReview(a) {
		return nil
	}
	quotas, err := q.quotasFor(ctx, a)
	if err != nil || len(quotas) == 0 {
		return err
	}
	evaluator := generic.NewObjectCountEvaluator(a.GetResource().GroupResource(), nil, coreCountName(a))
	for range quotaAttempts {
		charged, err := resourcequota.CheckRequest(quotas, a, evaluator, nil)
		if err != nil {
			return err
		}
		if a.IsDryRun() {
			return nil
		}
		err = q.write(ctx, quotas, charged)
		if !apierrors.IsConflict(err) {
			return err
		}
		select {
		case <-time.After(quotaPause):
		case <-ctx.Done():
			return ctx.Err()
		}
		if quotas, err = q.refresh(ctx, quotas); err != nil {
			return err
		}
	}
	return apierrors.NewConflict(corev1.Resource("resourcequotas"), quotas[0].Name,
		errors.New("other requests keep changing the quota; try again"))
}

// coreCountName returns the name of a core resource in quotas besides count/<resource>, or an empty string if it has none.
func coreCountName(a admission.Attributes) corev1.ResourceName {
	if a.GetResource().Group != "" {
		return ""
	}
	switch name := corev1.ResourceName(a.GetResource().Resource); name {
	case corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceQuotas:
		return name
	default:
		return ""
	}
}

// quotasFor returns copies of the quotas that a new object is charged to.
func (q *quota) quotasFor(ctx context.Context, a admission.Attributes) ([]corev1.ResourceQuota, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	q.config.Set.ResourceQuotas.Current(ctx, cluster)
	var quotas []corev1.ResourceQuota
	add := func(namespace string, clusterScoped bool) error {
		list, err := q.config.Set.ResourceQuotas.ListNamespace(cluster, namespace)
		for _, found := range list {
			if IsClusterScoped(found) == clusterScoped {
				quotas = append(quotas, *found.DeepCopy())
			}
		}
		return err
	}
	if a.GetNamespace() != "" {
		if err := add(a.GetNamespace(), false); err != nil {
			return nil, err
		}
	}
	return quotas, add(ClusterQuotaNamespace, true)
}

// IsClusterScoped reports whether a quota counts the objects of its whole cluster.
func IsClusterScoped(q *corev1.ResourceQuota) bool {
	return q.Namespace == ClusterQuotaNamespace && q.Annotations[ClusterScopedQuota] == "true"
}

// write stores the quotas whose usage has changed.
func (q *quota) write(ctx context.Context, before, after []corev1.ResourceQuota) error {
	for i := range after {
		if equality.Semantic.DeepEqual(before[i].Status.Used, after[i].Status.Used) {
			continue
		}
		changed := before[i].DeepCopy()
		changed.Status.Used = quotaapi.Mask(after[i].Status.Used, quotaapi.ResourceNames(after[i].Status.Hard))
		_, err := q.config.Kube.CoreV1().ResourceQuotas(changed.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			if apierrors.IsConflict(err) {
				return err
			}
			return fmt.Errorf("charging quota %s: %w", changed.Name, err)
		}
	}
	return nil
}

// refresh reads quotas again. Quotas that are deleted are left out.
func (q *quota) refresh(ctx context.Context, quotas []corev1.ResourceQuota) ([]corev1.ResourceQuota, error) {
	var live []corev1.ResourceQuota
	for i := range quotas {
		found, err := q.config.Kube.CoreV1().ResourceQuotas(quotas[i].Namespace).Get(ctx, quotas[i].Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		live = append(live, *found)
	}
	return live, nil
}
