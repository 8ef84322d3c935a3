// Package metrics has metrics of the operator's objects: their conditions, and when their certificates expire. Each scrape computes them
// from the caches, so that no series of deleted objects remain, and nothing is computed between scrapes.
package metrics

import (
	"context"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// patience is how long a scrape waits for caches that do not answer.
const patience = 5 * time.Second

var (
	conditionStatus = prometheus.NewDesc("kcp_operator_condition_status",
		"Whether a condition of an object is true (1), false (0) or unknown (-1).",
		[]string{"resource_type", "namespace", "resource_name", "condition_type"}, nil)
	scaledToZero = prometheus.NewDesc("kcp_operator_scaled_to_zero",
		"1 for an object whose spec.replicas is 0, and for an object that waits for such an object.",
		[]string{"resource_type", "namespace", "resource_name"}, nil)
	certificateExpiry = prometheus.NewDesc("kcp_operator_certificate_expiry_timestamp_seconds",
		"When a certificate expires, in seconds since 1970. The labels have the object that owns it.",
		ofCertificates, nil)
	certificateRenewal = prometheus.NewDesc("kcp_operator_certificate_renewal_timestamp_seconds",
		"When a certificate is due for renewal, in seconds since 1970.", ofCertificates, nil)
	ofCertificates = []string{"resource_type", "namespace", "resource_name", "certificate"}
)

// Collector collects the metrics of objects.
type Collector struct {
	// Reader reads objects from the caches.
	Reader client.Reader
	// Elected is closed when this process becomes the leader. Replicas on standby have no metrics of objects.
	Elected <-chan struct{}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- conditionStatus
	descriptions <- scaledToZero
	descriptions <- certificateExpiry
	descriptions <- certificateRenewal
}

// Collect implements prometheus.Collector. It omits objects that cannot be read.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	select {
	case <-c.Elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, list := range []client.ObjectList{
		&v1alpha1.RootShardList{}, &v1alpha1.ShardList{}, &v1alpha1.FrontProxyList{}, &v1alpha1.CacheServerList{},
		&v1alpha1.VirtualWorkspaceList{}, &v1alpha1.KubeconfigList{}, &v1alpha1.EtcdClusterList{}, &v1alpha1.EtcdBackupScheduleList{},
		&certmanager.CertificateList{},
	} {
		if c.Reader.List(ctx, list, client.UnsafeDisableDeepCopy) != nil {
			continue
		}
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			tell(object.(client.Object), metrics)
			return nil
		})
	}
}

func tell(object client.Object, metrics chan<- prometheus.Metric) {
	switch o := object.(type) {
	case *v1alpha1.RootShard:
		tellConditions("RootShard", o, o.Status.Conditions, metrics)
	case *v1alpha1.Shard:
		tellConditions("Shard", o, o.Status.Conditions, metrics)
	case *v1alpha1.FrontProxy:
		tellConditions("FrontProxy", o, o.Status.Conditions, metrics)
	case *v1alpha1.CacheServer:
		tellConditions("CacheServer", o, o.Status.Conditions, metrics)
	case *v1alpha1.VirtualWorkspace:
		tellConditions("VirtualWorkspace", o, o.Status.Conditions, metrics)
	case *v1alpha1.Kubeconfig:
		tellConditions("Kubeconfig", o, o.Status.Conditions, metrics)
	case *v1alpha1.EtcdCluster:
		tellConditions("EtcdCluster", o, o.Status.Conditions, metrics)
	case *v1alpha1.EtcdBackupSchedule:
		tellConditions("EtcdBackupSchedule", o, o.Status.Conditions, metrics)
	case *certmanager.Certificate:
		owner := metav1.GetControllerOf(o)
		for metric, at := range map[*prometheus.Desc]*metav1.Time{certificateExpiry: o.Status.NotAfter,
			certificateRenewal: o.Status.RenewalTime} {
			if owner != nil && at != nil {
				metrics <- prometheus.MustNewConstMetric(metric, prometheus.GaugeValue, float64(at.Unix()), owner.Kind, o.Namespace, owner.Name, o.Name)
			}
		}
	}
}

// values of condition statuses.
var values = map[metav1.ConditionStatus]float64{metav1.ConditionTrue: 1, metav1.ConditionFalse: 0, metav1.ConditionUnknown: -1}

func tellConditions(kind string, object client.Object, all []metav1.Condition, metrics chan<- prometheus.Metric) {
	off := false
	for _, condition := range all {
		off = off || condition.Reason == conditions.ScaledToZero
		metrics <- prometheus.MustNewConstMetric(conditionStatus, prometheus.GaugeValue, values[condition.Status],
			kind, object.GetNamespace(), object.GetName(), condition.Type)
	}
	if off {
		metrics <- prometheus.MustNewConstMetric(scaledToZero, prometheus.GaugeValue, 1, kind, object.GetNamespace(), object.GetName())
	}
}
