package workload

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/pki"
)

// ServiceMonitorKind is a kind of the Prometheus Operator, which may not be installed.
var ServiceMonitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// NoServiceMonitors returns the error for conditions if this kind does not exist.
func NoServiceMonitors() error {
	return conditions.Stall("KindMissing",
		"spec.monitoring.serviceMonitor: this cluster has no kind ServiceMonitor: install the Prometheus Operator, or disable serviceMonitor")
}

// ServiceMonitor builds the ServiceMonitor of a component, and reports whether it is wanted.
func ServiceMonitor(c *Component) (monitor *unstructured.Unstructured, wanted bool) {
	secret := func(name, key string) map[string]any {
		return map[string]any{"name": name, "key": key}
	}
	return Monitor(c.meta(), c.Monitoring, map[string]any{
		"port": PortName, "scheme": "https", "path": c.Metrics.Path,
		"tlsConfig": map[string]any{
			"serverName": c.Metrics.ServerName,
			"ca":         map[string]any{"secret": secret(c.Metrics.CASecret, "tls.crt")},
			"cert":       map[string]any{"secret": secret(c.Metrics.ClientSecret, "tls.crt")},
			"keySecret":  secret(c.Metrics.ClientSecret, "tls.key"),
		},
	})
}

// Monitor builds a ServiceMonitor for an endpoint of the Services with the labels of meta, and reports whether it is wanted.
func Monitor(meta metav1.ObjectMeta, spec *v1alpha1.MonitoringSpec,
	endpoint map[string]any) (monitor *unstructured.Unstructured, wanted bool) {
	m := &unstructured.Unstructured{}
	m.SetGroupVersionKind(ServiceMonitorKind)
	m.SetNamespace(meta.Namespace)
	m.SetName(meta.Name)
	if !Scraped(spec) {
		return m, false
	}
	m.SetLabels(pki.Overlay(spec.ServiceMonitor.Labels, meta.Labels))
	if interval := spec.ServiceMonitor.Interval; interval != "" {
		endpoint["interval"] = interval
	}
	selector := map[string]any{}
	for key, value := range meta.Labels {
		selector[key] = value
	}
	m.Object["spec"] = map[string]any{"selector": map[string]any{"matchLabels": selector}, "endpoints": []any{endpoint}}
	return m, true
}

// Scraped reports whether the spec enables a ServiceMonitor.
func Scraped(spec *v1alpha1.MonitoringSpec) bool {
	return spec != nil && spec.ServiceMonitor != nil && spec.ServiceMonitor.Enabled
}
