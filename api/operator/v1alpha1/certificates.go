package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Certificates selects the issuer of the certificate authorities of an installation. With neither field set, the operator creates a
// self-signed CA.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.issuerRef) && has(self.caSecretRef))",message="set issuerRef or caSecretRef, not both; with neither, the operator creates a self-signed CA"
type Certificates struct {
	// IssuerRef names an Issuer or ClusterIssuer that may sign certificate authorities.
	//
	// +optional
	IssuerRef *ObjectReference `json:"issuerRef,omitempty"`
	// CASecretRef names a Secret with the certificate (tls.crt) and the key (tls.key) of an existing CA.
	//
	// +optional
	CASecretRef *LocalReference `json:"caSecretRef,omitempty"`
}

// CertificateTemplateMap maps names of certificates to templates: "server", or "server-ca" for a CA.
//
// +kubebuilder:validation:MaxProperties=16
type CertificateTemplateMap map[string]CertificateTemplate

// CertificateTemplate customizes a certificate that the operator requests.
type CertificateTemplate struct {
	// Metadata to add to the Certificate.
	//
	// +optional
	Metadata *Metadata `json:"metadata,omitempty"`
	// Spec of the Certificate.
	//
	// +optional
	Spec *CertificateSpecTemplate `json:"spec,omitempty"`
}

// CertificateSpecTemplate customizes the spec of a certificate.
//
// +kubebuilder:validation:XValidation:rule="!has(self.duration) || !has(self.renewBefore) || duration(self.renewBefore) < duration(self.duration)",message="renewBefore must be less than duration",fieldPath=".renewBefore"
type CertificateSpecTemplate struct {
	// Subject has attributes to add to the subject of the certificate.
	//
	// +optional
	Subject *X509Subject `json:"subject,omitempty"`
	// IssuerRef names another issuer for this certificate. DNSNames then replace the names that the operator requests.
	//
	// +optional
	IssuerRef *ObjectReference `json:"issuerRef,omitempty"`
	// DNSNames to add.
	//
	// +optional
	// +listType=set
	DNSNames []string `json:"dnsNames,omitempty"`
	// IPAddresses to add.
	//
	// +optional
	// +listType=set
	IPAddresses []string `json:"ipAddresses,omitempty"`
	// SecretTemplate has metadata to add to the Secret.
	//
	// +optional
	SecretTemplate *Metadata `json:"secretTemplate,omitempty"`
	// Duration for which the certificate is valid. Unset: one year, ten years for a CA.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1h')",message="must be at least 1h, the minimum of cert-manager"
	Duration *Duration `json:"duration,omitempty"`
	// RenewBefore is how long before it expires the certificate is renewed. Unset: a week, a month for a CA.
	//
	// +optional
	RenewBefore *Duration `json:"renewBefore,omitempty"`
	// PrivateKey of the certificate.
	//
	// +optional
	PrivateKey *PrivateKeyTemplate `json:"privateKey,omitempty"`
}

// X509Subject extends the subject of a certificate.
type X509Subject struct {
	// Organizations to add.
	//
	// +optional
	// +listType=set
	Organizations []string `json:"organizations,omitempty"`
	// Countries to add.
	//
	// +optional
	// +listType=set
	Countries []string `json:"countries,omitempty"`
	// OrganizationalUnits to add.
	//
	// +optional
	// +listType=set
	OrganizationalUnits []string `json:"organizationalUnits,omitempty"`
	// Localities to add.
	//
	// +optional
	// +listType=set
	Localities []string `json:"localities,omitempty"`
	// Provinces to add.
	//
	// +optional
	// +listType=set
	Provinces []string `json:"provinces,omitempty"`
	// StreetAddresses to add.
	//
	// +optional
	// +listType=set
	StreetAddresses []string `json:"streetAddresses,omitempty"`
	// PostalCodes to add.
	//
	// +optional
	// +listType=set
	PostalCodes []string `json:"postalCodes,omitempty"`
	// SerialNumber of the subject.
	//
	// +optional
	SerialNumber string `json:"serialNumber,omitempty"`
}

// PrivateKeyTemplate customizes a private key.
type PrivateKeyTemplate struct {
	// RotationPolicy defines whether renewal creates a new key. Unset: Always, or Never for CAs and service account keys.
	//
	// +optional
	// +kubebuilder:validation:Enum=Never;Always
	RotationPolicy string `json:"rotationPolicy,omitempty"`
	// Encoding of the key in the Secret. Unset: PKCS1.
	//
	// +optional
	// +kubebuilder:validation:Enum=PKCS1;PKCS8
	Encoding string `json:"encoding,omitempty"`
	// Algorithm of the key. Unset: ECDSA for servers, unless the size is one of RSA keys; RSA for all others.
	//
	// +optional
	// +kubebuilder:validation:Enum=RSA;ECDSA;Ed25519
	Algorithm string `json:"algorithm,omitempty"`
	// Size of the key in bits. Unset: 256 for servers, 4096 for all others.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=8192
	Size int `json:"size,omitempty"`
}

// CertificateStatus is the observed state of an issued certificate.
type CertificateStatus struct {
	// Name of the Certificate.
	Name string `json:"name"`
	// NotAfter is when the certificate expires.
	//
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
	// Revision counts how often the certificate was issued.
	//
	// +optional
	Revision int `json:"revision,omitempty"`
}
