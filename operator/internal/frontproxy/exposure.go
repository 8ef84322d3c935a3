package frontproxy

import (
	"cmp"
	"context"
	"net"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=tlsroutes,verbs=get;create;patch;delete

// tlsRoute is a kind of the Gateway API, which may not be installed. The fields that the operator writes are the same in all versions.
var (
	tlsRoute         = schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "TLSRoute"}
	tlsRouteVersions = []string{"v1", "v1alpha3", "v1alpha2"}
)

// exposed reports whether the spec has an Ingress or a TLSRoute.
func exposed(spec *v1alpha1.FrontProxySpec) bool { return spec.Ingress != nil || spec.TLSRoute != nil }

// exposure returns the condition of the objects that expose the front proxy.
func exposure(spec *v1alpha1.FrontProxySpec) string {
	if exposed(spec) {
		return v1alpha1.ConditionExposed
	}
	return conditions.Rest
}

// metadata returns the metadata of an object that exposes the front proxy.
func (p proxy) metadata(extra *v1alpha1.Metadata) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: p.Namespace, Name: p.workload(), Labels: p.base().Labels()}
	if extra != nil {
		m.Labels, m.Annotations = pki.Overlay(extra.Labels, m.Labels), pki.Overlay(extra.Annotations, nil)
	}
	return m
}

// ingress builds the Ingress for a hostname, and reports whether it is wanted. It has no Secret: TLS ends in the pods.
func (p proxy) ingress(host string) (ingress *networkingv1.Ingress, wanted bool) {
	spec := p.Spec.Ingress
	if spec == nil {
		return &networkingv1.Ingress{ObjectMeta: p.metadata(nil)}, false
	}
	host = strings.ToLower(host)
	ingress = &networkingv1.Ingress{ObjectMeta: p.metadata(&spec.Metadata), Spec: networkingv1.IngressSpec{
		TLS: []networkingv1.IngressTLS{{Hosts: []string{host}}},
		Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: new(networkingv1.PathTypePrefix),
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: p.workload(), Port: networkingv1.ServiceBackendPort{Name: workload.PortName}}},
			}}},
		}}},
	}}
	if spec.ClassName != "" {
		ingress.Spec.IngressClassName = new(spec.ClassName)
	}
	return ingress, true
}

// route builds the TLSRoute for a hostname to the port of the Service, and reports whether it is wanted.
func (p proxy) route(version, host string, port uint32) (route *unstructured.Unstructured, wanted bool) {
	route = &unstructured.Unstructured{}
	route.SetGroupVersionKind(tlsRoute.WithVersion(version))
	route.SetNamespace(p.Namespace)
	route.SetName(p.workload())
	spec := p.Spec.TLSRoute
	if spec == nil {
		return route, false
	}
	m := p.metadata(spec.Metadata)
	route.SetLabels(m.Labels)
	if len(m.Annotations) > 0 {
		route.SetAnnotations(m.Annotations)
	}
	var parents []any
	for _, ref := range spec.ParentRefs {
		parent := map[string]any{"name": ref.Name}
		for field, value := range map[string]string{"namespace": ref.Namespace, "sectionName": ref.SectionName} {
			if value != "" {
				parent[field] = value
			}
		}
		if ref.Port != 0 {
			parent["port"] = int64(ref.Port)
		}
		parents = append(parents, parent)
	}
	route.Object["spec"] = map[string]any{
		"parentRefs": parents,
		"hostnames":  []any{strings.ToLower(host)},
		"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": p.workload(), "port": int64(port)}}}},
	}
	return route, true
}

// expose creates what the spec has of an Ingress and a TLSRoute, and removes the rest.
func (s *scope) expose(ctx context.Context) error {
	f := s.FrontProxy
	if exposed(&f.Spec) && net.ParseIP(s.externalHost) != nil {
		field := "spec.tlsRoute"
		if f.Spec.Ingress != nil {
			field = "spec.ingress"
		}
		return conditions.Stall("HostnameRequired", "%s: Ingresses and Gateways select front proxies by hostname, and the address of this one "+
			"is %s: set a hostname in spec.external", field, s.externalHost)
	}
	ingress, wanted := s.ingress(s.externalHost)
	return cmp.Or(apply.Optional(ctx, s.Client, f, wanted, ingress), s.exposeRoute(ctx))
}

// exposeRoute creates or removes the TLSRoute, in the newest version that the cluster serves. Routes are not watched, because their kind
// may not exist.
func (s *scope) exposeRoute(ctx context.Context) error {
	mapping, err := s.RESTMapper().RESTMapping(tlsRoute, tlsRouteVersions...)
	if meta.IsNoMatchError(err) {
		if s.FrontProxy.Spec.TLSRoute == nil {
			return nil
		}
		return conditions.Unwatched(component.Again, conditions.Stall("KindMissing",
			"spec.tlsRoute: this cluster has no kind TLSRoute: install the Gateway API, or remove the field"))
	}
	if err != nil {
		return err
	}
	route, wanted := s.route(mapping.GroupVersionKind.Version, s.externalHost, s.externalPort)
	if err := apply.Optional(ctx, s.Client, s.FrontProxy, wanted, route); err != nil || !wanted {
		return err
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(mapping.GroupVersionKind)
	if err := s.Get(ctx, client.ObjectKeyFromObject(route), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	return conditions.Unwatched(component.Again, accepted(live, s.FrontProxy.Spec.TLSRoute.ParentRefs))
}

// accepted returns an error for the first Gateway that has not accepted a TLSRoute.
func accepted(route *unstructured.Unstructured, gateways []v1alpha1.GatewayReference) error {
	parents, _, _ := unstructured.NestedSlice(route.Object, "status", "parents")
	for i, gateway := range gateways {
		at := cmp.Or(gateway.Namespace, route.GetNamespace()) + "/" + gateway.Name
		answer := answerOf(route, parents, gateway)
		switch {
		case answer == nil:
			return conditions.Wait("WaitingForGateway", "spec.tlsRoute.parentRefs[%d]: waiting for Gateway %s to accept TLSRoute %s: check that "+
				"the Gateway exists and has a controller", i, at, route.GetName())
		case answer.Status != metav1.ConditionTrue:
			return conditions.Stall("RouteNotAccepted", "spec.tlsRoute.parentRefs[%d]: Gateway %s does not accept TLSRoute %s: %s: %s; it needs "+
				"a listener with the protocol TLS and the mode Passthrough that allows routes of this namespace", i, at, route.GetName(),
				answer.Reason, answer.Message)
		}
	}
	return nil
}

// answerOf returns the condition Accepted that a Gateway has set on the current TLSRoute, or nil.
func answerOf(route *unstructured.Unstructured, parents []any, gateway v1alpha1.GatewayReference) *metav1.Condition {
	var answer *metav1.Condition
	for _, entry := range parents {
		parent, _ := entry.(map[string]any)
		ref, _, _ := unstructured.NestedMap(parent, "parentRef")
		name, _ := ref["name"].(string)
		namespace, _ := ref["namespace"].(string)
		section, _ := ref["sectionName"].(string)
		port, _ := ref["port"].(int64)
		if name != gateway.Name || section != gateway.SectionName || port != int64(gateway.Port) ||
			cmp.Or(namespace, route.GetNamespace()) != cmp.Or(gateway.Namespace, route.GetNamespace()) {
			continue
		}
		list, _, _ := unstructured.NestedSlice(parent, "conditions")
		for _, entry := range list {
			c, _ := entry.(map[string]any)
			generation, _ := c["observedGeneration"].(int64)
			if c["type"] != "Accepted" || generation != 0 && generation < route.GetGeneration() {
				continue
			}
			text := func(field string) string { value, _ := c[field].(string); return value }
			found := &metav1.Condition{Status: metav1.ConditionStatus(text("status")), Reason: text("reason"), Message: text("message")}
			if answer == nil || found.Status == metav1.ConditionTrue { // several controllers may answer
				answer = found
			}
		}
	}
	return answer
}
