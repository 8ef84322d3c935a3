package certmanager

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Issuer signs certificates of its namespace.
//
// +kubebuilder:object:root=true
type Issuer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IssuerSpec `json:"spec,omitempty"`
	Status Status     `json:"status,omitempty"`
}

// IssuerSpec says how an Issuer signs. Those that others made may sign in ways that are not listed here.
type IssuerSpec struct {
	SelfSigned *SelfSigned `json:"selfSigned,omitempty"`
	CA         *CA         `json:"ca,omitempty"`
}

// SelfSigned lets every certificate sign itself.
type SelfSigned struct{}

// CA signs with the key of an authority.
type CA struct {
	// SecretName names the Secret with the certificate and the key.
	SecretName string `json:"secretName"`
}

// ClusterIssuer signs certificates of all namespaces.
//
// +kubebuilder:object:root=true
type ClusterIssuer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status Status `json:"status,omitempty"`
}

// Certificate asks for a certificate and a key in a Secret.
//
// +kubebuilder:object:root=true
type Certificate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CertificateSpec   `json:"spec,omitempty"`
	Status CertificateStatus `json:"status,omitempty"`
}

// CertificateSpec says what the certificate is like.
type CertificateSpec struct {
	Subject        *Subject         `json:"subject,omitempty"`
	CommonName     string           `json:"commonName,omitempty"`
	Duration       *metav1.Duration `json:"duration,omitempty"`
	RenewBefore    *metav1.Duration `json:"renewBefore,omitempty"`
	DNSNames       []string         `json:"dnsNames,omitempty"`
	IPAddresses    []string         `json:"ipAddresses,omitempty"`
	SecretName     string           `json:"secretName"`
	SecretTemplate *SecretTemplate  `json:"secretTemplate,omitempty"`
	IssuerRef      ObjectReference  `json:"issuerRef"`
	IsCA           bool             `json:"isCA,omitempty"`
	Usages         []string         `json:"usages,omitempty"`
	PrivateKey     *PrivateKey      `json:"privateKey,omitempty"`
}

// Subject is who a certificate is made out to, besides the common name.
type Subject struct {
	Organizations       []string `json:"organizations,omitempty"`
	Countries           []string `json:"countries,omitempty"`
	OrganizationalUnits []string `json:"organizationalUnits,omitempty"`
	Localities          []string `json:"localities,omitempty"`
	Provinces           []string `json:"provinces,omitempty"`
	StreetAddresses     []string `json:"streetAddresses,omitempty"`
	PostalCodes         []string `json:"postalCodes,omitempty"`
	SerialNumber        string   `json:"serialNumber,omitempty"`
}

// SecretTemplate is added to the metadata of the Secret.
type SecretTemplate struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// ObjectReference names an issuer.
type ObjectReference struct {
	Name  string `json:"name"`
	Kind  string `json:"kind,omitempty"`
	Group string `json:"group,omitempty"`
}

// PrivateKey says what the key is like.
type PrivateKey struct {
	RotationPolicy string `json:"rotationPolicy,omitempty"`
	Encoding       string `json:"encoding,omitempty"`
	Algorithm      string `json:"algorithm,omitempty"`
	Size           int    `json:"size,omitempty"`
}

// Status is what is known of an issuer.
type Status struct {
	Conditions []Condition `json:"conditions,omitempty"`
}

// CertificateStatus is what is known of a certificate.
type CertificateStatus struct {
	Conditions []Condition  `json:"conditions,omitempty"`
	NotBefore  *metav1.Time `json:"notBefore,omitempty"`
	NotAfter   *metav1.Time `json:"notAfter,omitempty"`
	// RenewalTime is when it will be issued again.
	RenewalTime *metav1.Time `json:"renewalTime,omitempty"`
	// Revision counts how often the certificate was issued.
	Revision *int `json:"revision,omitempty"`
}

// Condition of an issuer or a certificate.
type Condition struct {
	Type               string                 `json:"type"`
	Status             metav1.ConditionStatus `json:"status"`
	Reason             string                 `json:"reason,omitempty"`
	Message            string                 `json:"message,omitempty"`
	ObservedGeneration int64                  `json:"observedGeneration,omitempty"`
}

// IssuerList is a list of Issuers.
//
// +kubebuilder:object:root=true
type IssuerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Issuer `json:"items"`
}

// ClusterIssuerList is a list of ClusterIssuers.
//
// +kubebuilder:object:root=true
type ClusterIssuerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterIssuer `json:"items"`
}

// CertificateList is a list of Certificates.
//
// +kubebuilder:object:root=true
type CertificateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Certificate `json:"items"`
}
