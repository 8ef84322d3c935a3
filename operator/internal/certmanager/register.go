package certmanager

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: "cert-manager.io", Version: "v1"}

// Kinds of issuers.
const (
	IssuerKind        = "Issuer"
	ClusterIssuerKind = "ClusterIssuer"
)

// AddToScheme registers the types of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&Certificate{}, &CertificateList{}, &ClusterIssuer{}, &ClusterIssuerList{}, &Issuer{}, &IssuerList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}

// Unready says why a certificate cannot be used yet, or nothing if it can.
func (c *Certificate) Unready() string {
	for _, condition := range c.Status.Conditions {
		switch {
		case condition.Type != "Ready":
		case condition.ObservedGeneration < c.Generation:
			return "it has changed and is issued again"
		case condition.Status == metav1.ConditionTrue:
			return ""
		default:
			return cmp.Or(condition.Message, "it is not ready")
		}
	}
	return "cert-manager has not looked at it yet"
}

// Overdue is when people should know that a certificate is not renewed: at the latest when a third of its lifetime is left, or, if
// it is to be renewed later, then; and a tenth of the rest later, since that takes a while. Zero: it is not known.
func (c *Certificate) Overdue() time.Time {
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
