package workload

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/operator/pki"
)

// ServiceMonitorKind is a kind of the operator of Prometheus, which need not be there.
var ServiceMonitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// ServiceMonitor builds what tells a Prometheus of the pods, or returns nil if it is not wanted.
func ServiceMonitor(c *Component) *unstructured.Unstructured {
	if c.Monitoring == nil || c.Monitoring.ServiceMonitor == nil || !c.Monitoring.ServiceMonitor.Enabled {
		return nil
	}
	secret := func(name, key string) map[string]any {
		return map[string]any{"name": name, "key": key}
	}
	endpoint := map[string]any{
		"port": portName, "scheme": "https", "path": c.Metrics.Path,
		"tlsConfig": map[string]any{
			"serverName": c.Metrics.ServerName,
			"ca":         map[string]any{"secret": secret(c.Metrics.CASecret, "tls.crt")},
			"cert":       map[string]any{"secret": secret(c.Metrics.ClientSecret, "tls.crt")},
			"keySecret":  secret(c.Metrics.ClientSecret, "tls.key"),
		},
	}
	if interval := c.Monitoring.ServiceMonitor.Interval; interval != "" {
		endpoint["interval"] = interval
	}
	selector := map[string]any{}
	for key, value := range c.Labels() {
		selector[key] = value
	}
	m := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector": map[string]any{"matchLabels": selector}, "endpoints": []any{endpoint},
	}}}
	m.SetGroupVersionKind(ServiceMonitorKind)
	m.SetNamespace(c.Namespace)
	m.SetName(c.Name)
	m.SetLabels(pki.Overlay(c.Monitoring.ServiceMonitor.Labels, c.Labels()))
	return m
}
