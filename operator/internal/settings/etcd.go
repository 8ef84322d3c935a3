package settings

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcplane/kcp/operator/internal/workload"
)

// Etcd has the endpoints of an etcd, and the name of the Secret with tls.crt, tls.key and ca.crt for it, if it requires certificates.
type Etcd struct {
	Endpoints []string
	Secret    string
	Prefix    string
	// Trust is the Secret, and TrustKey its key, with the CAs of the members, instead of ca.crt. Both may be empty.
	Trust, TrustKey string
}

// UsedBy reports whether pods, with these annotations, use the etcd as the component does: its flags, and the credentials.
func (e Etcd) UsedBy(c *workload.Component, annotations map[string]string, pod corev1.PodSpec) bool {
	var server *corev1.Container
	for i := range pod.Containers {
		if pod.Containers[i].Name == c.Container {
			server = &pod.Containers[i]
		}
	}
	if server == nil || !slices.Equal(etcdArgsOf(server.Args), etcdArgsOf(c.Args)) {
		return false
	}
	for _, r := range EtcdReferences(e) {
		mounted := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == r.Volume && v.Secret != nil && v.Secret.SecretName == r.Secret
		})
		if !mounted || len(r.Hashed()) > 0 && annotations[workload.InputAnnotation+r.Input()] != c.Inputs[r.Input()] {
			return false
		}
	}
	return true
}

// etcdArgsOf returns the etcd flags of a command line.
func etcdArgsOf(args []string) []string {
	var found []string
	for _, arg := range args {
		if slices.ContainsFunc(etcdNames, func(flag string) bool { return strings.HasPrefix(arg, flag) }) {
			found = append(found, arg)
		}
	}
	return found
}
