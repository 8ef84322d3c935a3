package v1alpha1

// IngressSpec configures the Ingress of a front proxy.
type IngressSpec struct {
	// ClassName is the name of the IngressClass. Unset: the default class of the cluster.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClassName string `json:"className,omitempty"`
	// Metadata to add to the Ingress. Its annotations make the controller of the class pass TLS through, for example
	// nginx.ingress.kubernetes.io/ssl-passthrough: "true". A controller that terminates TLS hides the certificates of clients from kcp.
	//
	// +kubebuilder:validation:XValidation:rule="has(self.annotations) && size(self.annotations) > 0",message="set the annotation with which the controller of the class passes TLS through to the pods, for example nginx.ingress.kubernetes.io/ssl-passthrough: \"true\"",fieldPath=".annotations"
	Metadata Metadata `json:"metadata"`
}

// TLSRouteSpec configures the TLSRoute of a front proxy, with which Gateways of the Gateway API pass TLS through to it.
type TLSRouteSpec struct {
	// Metadata to add to the TLSRoute.
	//
	// +optional
	Metadata *Metadata `json:"metadata,omitempty"`
	// ParentRefs are the Gateways that the TLSRoute attaches to. Each needs a listener with the protocol TLS and the mode Passthrough.
	//
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	ParentRefs []GatewayReference `json:"parentRefs"`
}

// GatewayReference names a Gateway, or one of its listeners.
type GatewayReference struct {
	// Name of the Gateway.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of the Gateway. Unset: that of the front proxy. In another one, the listener must allow routes of this namespace.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// SectionName is the name of a listener. Unset: all listeners that fit.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SectionName string `json:"sectionName,omitempty"`
	// Port of the listeners. Unset: any.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}
