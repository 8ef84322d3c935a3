package cacheserver

import (
	"fmt"
	"slices"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/settings"
	"github.com/kcplane/kcp/operator/internal/workload"
)

const (
	// kind is the Kind in labels.
	kind = "cache-server"
	// container is the name of the container.
	container = "cache-server"
	// rootDirectory has the files that the server writes, the embedded etcd included.
	rootDirectory = "/var/run/kcp"
	tls           = "/etc/cache-server/tls/"
	// metricsViewer is the user that may only read the metrics, and the name of its certificate.
	metricsViewer = "metrics-viewer"
)

// name returns the name of an object of a CacheServer.
func name(c *v1alpha1.CacheServer, part string) string {
	return installation.CachePrefix(c.Name) + part
}

// base returns a component with the names and labels of its objects.
func base(c *v1alpha1.CacheServer) *workload.Component {
	return &workload.Component{Name: installation.CacheWorkload(c.Name), Namespace: c.Namespace, Instance: c.Name, Kind: kind}
}

// labels returns the labels of certificates and Secrets.
func labels(c *v1alpha1.CacheServer) map[string]string {
	return pki.Overlay(base(c).Labels(), map[string]string{installation.CacheLabel: c.Name})
}

// authority returns the name of the Secret of the CA, which also is that of its Issuer if the operator creates the CA.
func authority(c *v1alpha1.CacheServer) string {
	if given := c.Spec.Certificates; given != nil && given.CASecretRef != nil {
		return given.CASecretRef.Name
	}
	return name(c, "ca")
}

// url returns the URL of the cache server for shards.
func url(c *v1alpha1.CacheServer) string {
	return fmt.Sprintf("https://%s:%d", installation.CacheHost(c), workload.Port)
}

// certificates builds the CA, which is independent of the one of the installation, and the certificate of the server. The CA also signs the
// certificates of shards for the cache server.
func certificates(c *v1alpha1.CacheServer) (issuers, authorities, leaves []client.Object) {
	ca, given := name(c, "ca"), c.Spec.Certificates
	if given == nil || given.CASecretRef == nil {
		own := pki.Request{Namespace: c.Namespace, Name: ca, Labels: labels(c), CommonName: ca, Authority: true,
			Template: template(c, "root-ca"), Issuer: pki.IssuerNamed(name(c, "selfsigned"))}
		if given != nil && given.IssuerRef != nil {
			own.Issuer = pki.Issuer(*given.IssuerRef)
		} else {
			issuers = append(issuers, pki.SelfSignedIssuer(c.Namespace, own.Issuer.Name, labels(c)))
		}
		authorities = append(authorities, pki.Certificate(own))
	}
	issuers = append(issuers, pki.CAIssuer(c.Namespace, ca, authority(c), labels(c)))
	service := installation.CacheWorkload(c.Name)
	leaves = append(leaves, pki.Certificate(pki.Request{
		Namespace: c.Namespace, Name: name(c, "server"), Labels: labels(c), Template: template(c, "server"), Issuer: pki.IssuerNamed(ca),
		DNSNames: []string{"localhost", service, service + "." + c.Namespace, service + "." + c.Namespace + ".svc", installation.CacheHost(c)},
		Usages:   pki.ServerUsages,
	}))
	if workload.Scraped(c.Spec.Monitoring) {
		leaves = append(leaves, pki.Certificate(pki.Request{Namespace: c.Namespace, Name: name(c, metricsViewer), Labels: labels(c),
			Issuer: pki.IssuerNamed(ca), CommonName: metricsViewer, Usages: pki.ClientUsages}))
	}
	return issuers, authorities, leaves
}

// unwanted returns the certificates that the spec does not require.
func unwanted(c *v1alpha1.CacheServer) []client.Object {
	if workload.Scraped(c.Spec.Monitoring) {
		return nil
	}
	return []client.Object{&certmanager.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name(c, metricsViewer)}}}
}

func template(c *v1alpha1.CacheServer, name string) *v1alpha1.CertificateTemplate {
	if template, ok := c.Spec.CertificateTemplates[name]; ok {
		return &template
	}
	return nil
}

// references lists the Secrets and ConfigMaps in the spec, and those of the managed etcd.
func references(c *v1alpha1.CacheServer, etcd settings.Etcd) []settings.Reference {
	return slices.Concat(settings.EtcdReferences(etcd), settings.VolumeReferences(c.Spec.ExtraVolumes))
}

// build builds the input for package workload.
func build(c *v1alpha1.CacheServer, etcd settings.Etcd, inputs map[string]string, image string, replicas *int32) *workload.Component {
	w := base(c)
	w.Image, w.Container, w.Replicas = image, container, replicas
	w.Command, w.Args = []string{"/kcp", "cache-server"}, args(c, etcd)
	w.Resources = workload.Resources(defaultResources(), c.Spec.Resources)
	w.Files = append([]workload.Files{
		{Name: "server", Secret: name(c, "server"), Keys: []string{"tls.crt", "tls.key"}, Path: tls + "server"},
		{Name: "ca", Secret: name(c, "merged-ca-bundle"), Keys: []string{"tls.crt"}, Path: tls + "ca"},
	}, settings.Mounts(references(c, etcd))...)
	w.Scratch, w.Inputs = []string{rootDirectory, "/tmp"}, inputs
	w.Metrics = workload.Metrics{Path: "/metrics", ServerName: installation.CacheHost(c), CASecret: name(c, "merged-ca-bundle"),
		ClientSecret: name(c, metricsViewer)}
	return workload.Customized(w, &c.Spec.ComponentSpec)
}

func args(c *v1alpha1.CacheServer, etcd settings.Etcd) []string {
	a := []string{
		"--root-directory=" + rootDirectory,
		fmt.Sprintf("--secure-port=%d", workload.Port),
		"--tls-cert-file=" + tls + "server/tls.crt",
		"--tls-private-key-file=" + tls + "server/tls.key",
		"--peer-client-ca-file=" + tls + "ca/tls.crt",
		"--logging-format=json",
	}
	if workload.Scraped(c.Spec.Monitoring) {
		a = append(a, "--metrics-client-ca-file="+tls+"ca/tls.crt")
	}
	if c.Spec.Etcd != nil {
		a = append(a, settings.EtcdFlags(etcd)...)
	}
	return slices.Concat(a, settings.LoggingFlags(c.Spec.Logging), c.Spec.ExtraArgs)
}

func defaultResources() corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return corev1.ResourceRequirements{Requests: list("100m", "256Mi"), Limits: list("1", "2Gi")}
}
