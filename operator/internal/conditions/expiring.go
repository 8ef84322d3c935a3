package conditions

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/certmanager"
)

// Expiring warns in a condition of certificates that are not renewed in time. It returns when to look again: what becomes overdue
// wakes nobody. Zero: nothing will.
func Expiring(conditions *[]metav1.Condition, generation int64, certificates []*certmanager.Certificate) time.Duration {
	now, after := time.Now(), time.Duration(0)
	var late []string
	for _, c := range certificates {
		switch at := c.Overdue(); {
		case at.IsZero():
		case !at.After(now):
			late = append(late, fmt.Sprintf("%s expires %s", c.Name, c.Status.NotAfter.UTC().Format(time.RFC3339)))
		case after == 0 || at.Sub(now) < after:
			after = at.Sub(now)
		}
	}
	condition := metav1.Condition{Type: v1alpha1.ConditionCertificatesExpiring, Status: metav1.ConditionFalse, Reason: "RenewedOnTime",
		ObservedGeneration: generation}
	if len(late) > 0 {
		condition.Status, condition.Reason = metav1.ConditionTrue, "NotRenewed"
		condition.Message = "cert-manager has not renewed these Certificates in time: " + strings.Join(late, ", ") +
			": run kubectl describe for them and their issuers"
	}
	meta.SetStatusCondition(conditions, condition)
	return after
}

// warned returns the warning of certificates, if it is a new one.
func warned(was, is []metav1.Condition) *metav1.Condition {
	now := meta.FindStatusCondition(is, v1alpha1.ConditionCertificatesExpiring)
	if now == nil || now.Status != metav1.ConditionTrue || meta.IsStatusConditionTrue(was, v1alpha1.ConditionCertificatesExpiring) {
		return nil
	}
	return now
}
