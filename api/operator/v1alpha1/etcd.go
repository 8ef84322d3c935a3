package v1alpha1

// EtcdConfig selects the etcd that holds the data: an existing one, or one that the operator creates.
//
// +kubebuilder:validation:XValidation:rule="has(self.endpoints) != has(self.managed)",message="set either endpoints, for an existing etcd, or managed, for one that the operator creates"
// +kubebuilder:validation:XValidation:rule="has(self.managed) == has(oldSelf.managed)",message="an installation cannot move between endpoints and a managed etcd, because its data would not move with it"
// +kubebuilder:validation:XValidation:rule="!(has(self.managed) && has(self.tlsConfig))",message="tlsConfig is for endpoints: the operator creates the certificates of a managed etcd"
// +kubebuilder:validation:XValidation:rule="has(self.prefix) == has(oldSelf.prefix) && (!has(self.prefix) || self.prefix == oldSelf.prefix)",message="prefix is immutable: data that is stored under the old prefix would be lost"
type EtcdConfig struct {
	// Endpoints are the URLs of an existing etcd.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Endpoints []EtcdEndpoint `json:"endpoints,omitempty"`
	// TLSConfig has the credentials for the endpoints.
	//
	// +optional
	TLSConfig *EtcdTLSConfig `json:"tlsConfig,omitempty"`
	// Managed requests a dedicated etcd. The operator creates an EtcdCluster named <name of this object>-etcd.
	//
	// +optional
	Managed *EtcdClusterSpec `json:"managed,omitempty"`
	// Prefix of all keys, so that several installations can share an etcd. Unset: the default of the component.
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

// EtcdTLSConfig has the credentials for an etcd.
type EtcdTLSConfig struct {
	// SecretRef names the Secret with a client certificate (tls.crt), its key (tls.key) and the CA that signed the
	// certificates of the servers (ca.crt).
	SecretRef LocalReference `json:"secretRef"`
}
