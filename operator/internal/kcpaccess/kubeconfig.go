// Package kcpaccess gives clients access to kcp: it builds kubeconfigs, and binds roles in workspaces.
package kcpaccess

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Key is the key of a kubeconfig in its Secret.
const Key = "kubeconfig"

// Kubeconfig has the content of a kubeconfig.
type Kubeconfig struct {
	// User is the name of the user in the kubeconfig.
	User string
	// Certificate, CertificateKey, and Authorities to verify servers with, in PEM.
	Certificate, CertificateKey, Authorities []byte
	// Contexts are URLs of servers, by name. Current is one of these names.
	Contexts map[string]string
	Current  string
}

// Secret builds the Secret with a kubeconfig, which embeds all credentials.
func Secret(namespace, name string, labels map[string]string, k Kubeconfig) (*corev1.Secret, error) {
	config := clientcmdapi.NewConfig()
	config.AuthInfos[k.User] = &clientcmdapi.AuthInfo{ClientCertificateData: k.Certificate, ClientKeyData: k.CertificateKey}
	for context, url := range k.Contexts {
		config.Clusters[context] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: k.Authorities}
		config.Contexts[context] = &clientcmdapi.Context{Cluster: context, AuthInfo: k.User}
	}
	config.CurrentContext = k.Current
	return secretOf(namespace, name, labels, config)
}

// Files has the content of a kubeconfig that names files.
type Files struct {
	URL string
	// Certificate and CertificateKey may be empty.
	Certificate, CertificateKey, Authorities string
}

// FilesSecret builds the Secret with a kubeconfig that names files.
func FilesSecret(namespace, name string, labels map[string]string, f Files) (*corev1.Secret, error) {
	const current = "kcp"
	config := clientcmdapi.NewConfig()
	config.Clusters[current] = &clientcmdapi.Cluster{Server: f.URL, CertificateAuthority: f.Authorities}
	context := &clientcmdapi.Context{Cluster: current}
	if f.Certificate != "" {
		config.AuthInfos[current] = &clientcmdapi.AuthInfo{ClientCertificate: f.Certificate, ClientKey: f.CertificateKey}
		context.AuthInfo = current
	}
	config.Contexts[current], config.CurrentContext = context, current
	return secretOf(namespace, name, labels, config)
}

func secretOf(namespace, name string, labels map[string]string, config *clientcmdapi.Config) (*corev1.Secret, error) {
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{Key: content},
	}, nil
}
