package conditions

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// Expiring sets the condition CertificatesExpiring, a warning about certificates that are not renewed in time. It returns when the next
// one becomes overdue, because no watch reports that. Zero: none will.
func Expiring(conditions *[]metav1.Condition, generation int64, certificates []*certmanager.Certificate) time.Duration {
	now, after := time.Now(), time.Duration(0)
	var late []string
	for _, c := range certificates {
		switch at := overdue(c); {
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

// overdue returns the time from which the condition warns that a certificate has not been renewed: when a third of its lifetime is left,
// or at its renewal time if that is later, plus a tenth of the remaining time, because renewing takes a while. Zero: unknown.
func overdue(c *certmanager.Certificate) time.Time {
	from, to := c.Status.NotBefore, c.Status.NotAfter
	if from == nil || to == nil {
		return time.Time{}
	}
	due := to.Add(-to.Sub(from.Time) / 3)
	if at := c.Status.RenewalTime; at != nil && at.After(due) {
		due = at.Time
	}
	return due.Add(to.Sub(due) / 10)
}

// Unready returns why a Certificate is not ready, or an empty string if it is.
func Unready(c *certmanager.Certificate) string {
	for _, condition := range c.Status.Conditions {
		switch {
		case condition.Type != certmanager.CertificateConditionReady:
		case condition.ObservedGeneration < c.Generation:
			return "it has changed and is issued again"
		case condition.Status == cmmeta.ConditionTrue:
			return ""
		default:
			return cmp.Or(condition.Message, "it is not ready")
		}
	}
	return "cert-manager has not processed it yet"
}
