// Package shard builds the objects of a shard of kcp, from the fields that all shards have. Its functions are pure: callers read the
// objects that the spec refers to.
package shard

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/workload"
)

const (
	// kindLabel is the prefix, followed by a Kind, of the label with the name of the owning object.
	kindLabel = "operator.kcp.io/"
	// RootKind is the Kind of root shards.
	RootKind = "rootshard"
	// RootLabel is the label with the name of the RootShard that an object belongs to.
	RootLabel = kindLabel + RootKind
)

// Shard is the input of the builders.
type Shard struct {
	// Namespace and Name of the owning object, and its kind, as in labels.
	Namespace, Name, Kind string
	// Root is the name of the root shard of the installation, whose CAs sign certificates.
	Root string
	Spec *v1alpha1.CommonShardSpec
	// External is the address for clients outside of the cluster.
	External v1alpha1.ExternalConfig
	// RootSecret is the name of the Secret of the CA that signs the other CAs.
	RootSecret string
	// Templates customize certificates.
	Templates v1alpha1.CertificateTemplateMap
	// Image and number of the pods. Nil leaves the number to an autoscaler.
	Image    string
	Replicas *int32
	// Etcd stores the data.
	Etcd Etcd
	// Inputs are hashes of the data that the server reads only when it starts.
	Inputs map[string]string
}

// Etcd has the endpoints of an etcd, and the name of the Secret with tls.crt, tls.key and ca.crt for it, if it requires certificates.
type Etcd struct {
	Endpoints []string
	Secret    string
	Prefix    string
	// Trust is the Secret, and TrustKey its key, with the CAs of the members, instead of ca.crt. Both may be empty.
	Trust, TrustKey string
}

// Container is the name of the server's container in every pod.
const Container = "kcp"

// Root returns the Shard of a RootShard.
func Root(rs *v1alpha1.RootShard) *Shard {
	s := &Shard{
		Namespace: rs.Namespace, Name: rs.Name, Kind: RootKind, Root: rs.Name, Spec: &rs.Spec.CommonShardSpec,
		External: rs.Spec.External, RootSecret: rs.Name + "-ca", Templates: rs.Spec.CertificateTemplates, Replicas: rs.Spec.Replicas,
	}
	if c := rs.Spec.Certificates; c != nil && c.CASecretRef != nil {
		s.RootSecret = c.CASecretRef.Name
	}
	return s
}

// WorkloadName returns the name of the StatefulSet and of the Service.
func (s *Shard) WorkloadName() string { return s.Name + "-kcp" }

// Host returns the DNS name of the Service.
func (s *Shard) Host() string {
	return s.WorkloadName() + "." + s.Namespace + ".svc." + cmp.Or(s.Spec.ClusterDomain, "cluster.local")
}

// BaseURL returns the URL of the shard for other components.
func (s *Shard) BaseURL() string {
	if s.Spec.ShardBaseURL != "" {
		return strings.TrimSuffix(s.Spec.ShardBaseURL, "/")
	}
	return fmt.Sprintf("https://%s:%d", s.Host(), workload.Port)
}

// ExternalURL returns the URL of the installation for clients outside of the cluster.
func (s *Shard) ExternalURL() string {
	return address(s.External.Hostname, s.External.Port)
}

// PrivateURL returns the URL of the installation for components inside of its network.
func (s *Shard) PrivateURL() string {
	e := s.External
	if e.PrivateHostname == "" {
		return s.ExternalURL()
	}
	return address(e.PrivateHostname, cmp.Or(e.PrivatePort, e.Port))
}

func address(host string, port uint32) string {
	return "https://" + net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10))
}

// Labels returns the labels of the shard's certificates and Secrets.
func (s *Shard) Labels() map[string]string {
	labels := s.component().Labels()
	labels[kindLabel+s.Kind] = s.Name
	return labels
}

// Selector returns the labels of the pods.
func (s *Shard) Selector() map[string]string { return s.component().Labels() }

func (s *Shard) component() *workload.Component {
	return &workload.Component{Name: s.WorkloadName(), Namespace: s.Namespace, Instance: s.Name, Kind: s.Kind}
}

// UsesEtcd reports whether pods, with these annotations, use the etcd, prefix and credentials in the spec.
func (s *Shard) UsesEtcd(annotations map[string]string, pod corev1.PodSpec) bool {
	var server *corev1.Container
	for i := range pod.Containers {
		if pod.Containers[i].Name == Container {
			server = &pod.Containers[i]
		}
	}
	if server == nil || !slices.Equal(etcdArgsOf(server.Args), etcdArgsOf(args(s))) {
		return false
	}
	for _, r := range References(s) {
		if r.volume != etcdVolume && r.volume != etcdTrustVolume {
			continue
		}
		mounted := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == r.volume && v.Secret != nil && v.Secret.SecretName == r.Secret
		})
		if !mounted || len(r.Hashed()) > 0 && annotations[workload.InputAnnotation+r.Input()] != s.Inputs[r.Input()] {
			return false
		}
	}
	return true
}

// etcdArgsOf returns the etcd flags of a command line.
func etcdArgsOf(args []string) []string {
	var found []string
	for _, arg := range args {
		if slices.ContainsFunc(etcdFlags, func(flag string) bool { return strings.HasPrefix(arg, flag) }) {
			found = append(found, arg)
		}
	}
	return found
}

// Scraped reports whether the metrics have a ServiceMonitor.
func (s *Shard) Scraped() bool {
	return workload.Scraped(s.Spec.Monitoring)
}

// Component returns the input for package workload.
func Component(s *Shard) *workload.Component {
	c := s.component()
	c.Image, c.Container = s.Image, Container
	if s.Spec.Image != nil {
		c.PullSecrets = s.Spec.Image.ImagePullSecrets
	}
	c.Command, c.Args = []string{"/kcp", "start"}, args(s)
	c.Replicas, c.Resources = s.Replicas, workload.Resources(defaultResources(), s.Spec.Resources)
	c.Files, c.Scratch, c.Inputs = files(s), []string{rootDirectory, "/tmp"}, s.Inputs
	c.Extra = s.Spec.ExtraSpec
	c.Template, c.Service = s.Spec.DeploymentTemplate, s.Spec.ServiceTemplate
	c.PDB, c.NetworkPolicy, c.Monitoring = s.Spec.PDB, s.Spec.NetworkPolicy, s.Spec.Monitoring
	c.Metrics = workload.Metrics{Path: "/metrics", ServerName: s.Host(), CASecret: s.ServerBundle(), ClientSecret: s.leaf(metricsViewer)}
	return c
}

func defaultResources() corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("2", "2Gi")}
}

// baseHost returns the host in the base URL.
func (s *Shard) baseHost() string {
	if u, err := url.Parse(s.BaseURL()); err == nil {
		return u.Hostname()
	}
	return ""
}
