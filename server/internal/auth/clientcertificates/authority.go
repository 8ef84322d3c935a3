// Package clientcertificates implements the certificate authority for client certificates of logical clusters: the signer
// kubernetes.io/kube-apiserver-client. Its certificates prove an identity in one logical cluster and nowhere else. Therefore it
// differs from all other certificate authorities that the server trusts, and is trusted only for these certificates.
package clientcertificates

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// SecretName is the Secret with the key of the authority, in the namespace kube-system of the logical cluster system:admin. All servers
// of an etcd share it.
const SecretName = "client-certificate-authority"

const (
	// commonName is the common name of every such authority.
	commonName = "kcp-logical-cluster-clients"
	// lifetime of an authority. Its certificates do not outlive it.
	lifetime = 10 * 365 * 24 * time.Hour
	// backdate is the time by which certificates are valid before they are created, because clocks differ.
	backdate = 5 * time.Minute
	// reloadInterval is how often a server reloads the authority.
	reloadInterval = time.Minute
)

// Objects reads and creates objects in the cluster of ctx.
type Objects interface {
	Get(ctx context.Context, namespace, name string, into runtime.Object) error
	Create(ctx context.Context, obj runtime.Object) error
}

// Authority signs certificates, and authenticates requests with them. It does neither until Load succeeds.
type Authority struct {
	clusters informers.Lister[*corev1alpha1.LogicalCluster]
	objects  Objects
	clock    clock.WithTicker

	current   atomic.Pointer[pair]
	loading   sync.Mutex // guards changes of current
	listeners []dynamiccertificates.Listener
}

// pair is a certificate of an authority with its key.
type pair struct {
	certificate *x509.Certificate
	encoded     []byte // the certificate in PEM
	key         crypto.Signer
	roots       *x509.CertPool
	placeholder bool
}

var _ dynamiccertificates.CAContentProvider = &Authority{}

// New returns the authority for the logical clusters in clusters. Its key is stored in objects.
func New(clusters informers.Lister[*corev1alpha1.LogicalCluster], objects Objects, clock clock.WithTicker) (*Authority, error) {
	a := &Authority{clusters: clusters, objects: objects, clock: clock}
	certificate, key, err := generate(clock.Now()) // TLS is configured before the storage can be read
	if err != nil {
		return nil, err
	}
	placeholder, err := parse(certificate, key)
	if err != nil {
		return nil, err
	}
	placeholder.placeholder = true
	a.current.Store(placeholder)
	return a, nil
}

// Run reloads the authority until ctx ends: an administrator replaces it by deleting its Secret.
func (a *Authority) Run(ctx context.Context) {
	ticker := a.clock.NewTicker(reloadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if err := a.Load(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Loading the certificate authority for client certificates of logical clusters")
			}
		}
	}
}

// Load reads the authority, and creates it if it does not exist.
func (a *Authority) Load(ctx context.Context) error {
	a.loading.Lock()
	defer a.loading.Unlock()
	ctx = logicalcluster.WithName(ctx, logicalcluster.SystemAdmin)
	secret, err := a.stored(ctx)
	if err != nil {
		return fmt.Errorf("certificate authority for client certificates: %w", err)
	}
	if current := a.current.Load(); !current.placeholder && bytes.Equal(current.encoded, secret.Data[corev1.TLSCertKey]) {
		return nil
	}
	loaded, err := parse(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("certificate authority for client certificates: Secret %s/%s in %s: %w; delete the Secret to create a new "+
			"certificate authority",
			metav1.NamespaceSystem, SecretName, logicalcluster.SystemAdmin, err)
	}
	a.current.Store(loaded)
	for _, listener := range a.listeners {
		listener.Enqueue()
	}
	return nil
}

// stored returns the Secret of the authority. If several servers create it at the same time, one succeeds.
func (a *Authority) stored(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := a.objects.Get(ctx, metav1.NamespaceSystem, SecretName, secret)
	if !apierrors.IsNotFound(err) {
		return secret, err
	}
	certificate, key, err := generate(a.clock.Now())
	if err != nil {
		return nil, err
	}
	err = a.objects.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: SecretName},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	return secret, a.objects.Get(ctx, metav1.NamespaceSystem, SecretName, secret)
}

// Name implements dynamiccertificates.CAContentProvider.
func (a *Authority) Name() string { return commonName }

// CurrentCABundleContent implements dynamiccertificates.CAContentProvider: servers send the names of accepted authorities in TLS
// handshakes, and clients present only certificates of these authorities.
func (a *Authority) CurrentCABundleContent() []byte { return a.current.Load().encoded }

// VerifyOptions implements dynamiccertificates.CAContentProvider.
func (a *Authority) VerifyOptions() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: a.current.Load().roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

// AddListener implements dynamiccertificates.Notifier.
func (a *Authority) AddListener(listener dynamiccertificates.Listener) {
	a.loading.Lock()
	defer a.loading.Unlock()
	a.listeners = append(a.listeners, listener)
}

// generate returns the certificate and the key of a new authority in PEM.
func generate(now time.Time) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	number, err := serial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: commonName}, NotBefore: now.Add(-backdate), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, err
}

// parse returns the authority for a certificate and its key in PEM.
func parse(certificate, key []byte) (*pair, error) {
	parsed, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	signer, ok := parsed.PrivateKey.(crypto.Signer)
	if !ok || !parsed.Leaf.IsCA || parsed.Leaf.Subject.CommonName != commonName {
		return nil, errors.New("the server did not create this certificate authority")
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed.Leaf)
	return &pair{certificate: parsed.Leaf, encoded: certificate, key: signer, roots: roots}, nil
}

func serial() (*big.Int, error) { return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) }
