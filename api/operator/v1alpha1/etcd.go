package v1alpha1

// EtcdConfig says which etcd holds the data: one that exists, or one that the operator makes.
//
// +kubebuilder:validation:XValidation:rule="has(self.endpoints) != has(self.managed)",message="set either endpoints, for an etcd that exists, or managed, for one that the operator makes and keeps"
// +kubebuilder:validation:XValidation:rule="has(self.managed) == has(oldSelf.managed)",message="the data stays where it is: an installation cannot move between endpoints and a managed etcd"
// +kubebuilder:validation:XValidation:rule="!(has(self.managed) && has(self.tlsConfig))",message="tlsConfig is for endpoints: the operator makes the certificates of a managed etcd"
// +kubebuilder:validation:XValidation:rule="has(self.prefix) == has(oldSelf.prefix) && (!has(self.prefix) || self.prefix == oldSelf.prefix)",message="the prefix cannot change: everything stored under the old one would be gone"
type EtcdConfig struct {
	// Endpoints of an etcd that exists, as URLs.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Endpoints []EtcdEndpoint `json:"endpoints,omitempty"`
	// TLSConfig is how to be accepted by the endpoints.
	//
	// +optional
	TLSConfig *EtcdTLSConfig `json:"tlsConfig,omitempty"`
	// Managed asks for an etcd of one's own. The operator makes an EtcdCluster named <name of this object>-etcd.
	//
	// +optional
	Managed *EtcdClusterSpec `json:"managed,omitempty"`
	// Prefix of all keys, so that several may share an etcd. Unset: the component's own.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Prefix string `json:"prefix,omitempty"`
}

// EtcdEndpoint is the URL of a member of an etcd.
//
// +kubebuilder:validation:MaxLength=2048
// +kubebuilder:validation:XValidation:rule="self.startsWith('https://') || self.startsWith('http://')",message="an endpoint is a URL such as https://etcd-0.example.com:2379"
type EtcdEndpoint string

// EtcdTLSConfig is how to be accepted by an etcd.
type EtcdTLSConfig struct {
	// SecretRef names the Secret with a client certificate (tls.crt), its key (tls.key) and the authority that vouches for
	// the servers (ca.crt).
	SecretRef LocalReference `json:"secretRef"`
}
