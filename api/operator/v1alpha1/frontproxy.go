package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FrontProxy is the entrance of an installation of kcp: it authenticates users, and sends each request to the shard that holds the
// workspace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:categories=kcp,path=frontproxies,shortName=fproxy
// +kubebuilder:printcolumn:name="RootShard",type=string,JSONPath=`.spec.rootShard.ref.name`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="the name of a FrontProxy is part of names of Services and certificates: at most 40 lower case letters, digits and dashes, beginning with a letter"
type FrontProxy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec FrontProxySpec `json:"spec"`
	// +optional
	Status ComponentStatus `json:"status,omitempty"`
}

// FrontProxySpec is the desired state of a front proxy.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.externalHostname) && size(self.externalHostname) > 0 && has(self.external) && has(self.external.hostname) && size(self.external.hostname) > 0)",message="set external, and remove externalHostname, which is deprecated"
type FrontProxySpec struct {
	ComponentSpec `json:",inline"`

	// RootShard selects the installation that the front proxy serves.
	RootShard RootShardConfig `json:"rootShard"`
	// Auth configures how users authenticate, besides client certificates and what each shard accepts.
	//
	// +optional
	Auth *AuthSpec `json:"auth,omitempty"`
	// AdditionalPathMappings send requests for other paths than those of workspaces to other servers.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	AdditionalPathMappings []PathMappingEntry `json:"additionalPathMappings,omitempty"`
	// ExternalHostname is the hostname for clients, with an optional port. Deprecated: use external.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=259
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?(:[0-9]{1,5})?)?$')",message="a hostname has no scheme and no path: write kcp.example.com or kcp.example.com:443"
	ExternalHostname string `json:"externalHostname,omitempty"`
	// External is the address for clients outside of the cluster. Unset: the address in the RootShard.
	//
	// +optional
	External *FrontProxyExternalConfig `json:"external,omitempty"`
	// Ingress creates an Ingress for the hostname of the front proxy. Unset: none is created.
	//
	// +optional
	Ingress *IngressSpec `json:"ingress,omitempty"`
	// TLSRoute creates a TLSRoute of the Gateway API for the hostname of the front proxy. Unset: none is created.
	//
	// +optional
	TLSRoute *TLSRouteSpec `json:"tlsRoute,omitempty"`
	// CABundleSecretRef names a Secret whose tls.crt has additional CAs to trust for server certificates.
	//
	// +optional
	CABundleSecretRef *LocalReference `json:"caBundleSecretRef,omitempty"`
	// ClientCABundleRef names a Secret whose tls.crt has additional CAs to trust for client certificates.
	//
	// +optional
	ClientCABundleRef *LocalReference `json:"clientCABundleRef,omitempty"`
	// CertificateTemplates customize certificates of the front proxy, by name. The certificate requestheader authenticates the front proxy
	// at shards; kubeconfig is accepted for compatibility with existing manifests, and has no effect.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['server', 'kubeconfig', 'requestheader'])",message="a FrontProxy has no such certificate; it has server, kubeconfig and requestheader"
	CertificateTemplates CertificateTemplateMap `json:"certificateTemplates,omitempty"`
}

// FrontProxyExternalConfig is the address of a front proxy for clients outside of the cluster. Without a hostname, it is the address in the
// RootShard.
//
// +kubebuilder:validation:XValidation:rule="!has(self.hostname) || size(self.hostname) == 0 || (has(self.port) && self.port > 0)",message="set the port that clients use",fieldPath=".port"
type FrontProxyExternalConfig struct {
	// Hostname that clients use.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || isIP(self) || self.matches('^[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?$')",message="a hostname has no scheme, no port and no path: write kcp.example.com, not https://kcp.example.com:443/"
	Hostname string `json:"hostname,omitempty"`
	// Port that clients use, and the port of the Service.
	//
	// +optional
	// +kubebuilder:validation:Maximum=65535
	Port uint32 `json:"port,omitempty"`
	// PrivateHostname is a further hostname in the certificate of the server.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || isIP(self) || self.matches('^[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?$')",message="a hostname has no scheme, no port and no path: write kcp.example.com, not https://kcp.example.com:443/"
	PrivateHostname string `json:"privateHostname,omitempty"`
	// PrivatePort has no effect.
	//
	// +optional
	// +kubebuilder:validation:Maximum=65535
	PrivatePort uint32 `json:"privatePort,omitempty"`
}

// PathMappingEntry sends the requests for a path to another server.
type PathMappingEntry struct {
	// Path is a prefix, such as /services/things/. The longest matching prefix is used.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="a path begins with /"
	Path string `json:"path"`
	// Backend is the URL of the server.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://')",message="must begin with https://"
	Backend string `json:"backend"`
	// BackendServerCA is the file in the pods with the CA of the server's certificate. Mount other files with extraVolumes.
	//
	// +kubebuilder:validation:MaxLength=1024
	BackendServerCA string `json:"backend_server_ca"`
	// ProxyClientCert is the file in the pods with the client certificate for the server.
	//
	// +kubebuilder:validation:MaxLength=1024
	ProxyClientCert string `json:"proxy_client_cert"`
	// ProxyClientKey is the file in the pods with the key of the client certificate.
	//
	// +kubebuilder:validation:MaxLength=1024
	ProxyClientKey string `json:"proxy_client_key"`
}

// FrontProxyList is a list of FrontProxies.
//
// +kubebuilder:object:root=true
type FrontProxyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []FrontProxy `json:"items"`
}
