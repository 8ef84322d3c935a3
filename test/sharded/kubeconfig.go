package sharded

import (
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Operator is the user who may do everything at a shard. Shards do not accept such an identity from a front proxy.
var Operator = kcptest.User{Name: "operator", Groups: []string{"system:masters"}}

// Kubeconfig is the file with the credentials of the administrator: the context root is the workspace root at the URL of the installation,
// and the context of each shard is that shard.
func (i *Installation) Kubeconfig() string { return filepath.Join(i.Directory, "admin.kubeconfig") }

// writeKubeconfig writes the kubeconfig of the administrator.
func (i *Installation) writeKubeconfig() error {
	ca, err := os.ReadFile(i.PKI.Serving.File)
	if err != nil {
		return err
	}
	certificate, err := i.PKI.Client(Operator)
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	add := func(name, url, user string) {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	}
	for _, shard := range i.Shards {
		add("shard:"+shard.Name, shard.URL+"/clusters/root", Operator.Name)
	}
	config.AuthInfos[Operator.Name] = &clientcmdapi.AuthInfo{ClientCertificate: certificate.Cert, ClientKey: certificate.Key}
	if len(i.options.Users) > 0 {
		user := i.options.Users[0]
		add("root", i.URL()+"/clusters/root", user.Name)
		config.AuthInfos[user.Name] = &clientcmdapi.AuthInfo{Token: user.Token}
		config.CurrentContext = "root"
	}
	return clientcmd.WriteToFile(*config, i.Kubeconfig())
}

// kubeconfigOf writes a kubeconfig with the address of a process for other processes, and with a client certificate unless it is nil. It
// returns the path of the file.
func (i *Installation) kubeconfigOf(p *Process, name string, certificate *Certificate) (string, error) {
	ca, err := os.ReadFile(i.PKI.Serving.File)
	if err != nil {
		return "", err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[p.Name] = &clientcmdapi.Cluster{Server: p.InternalURL(), CertificateAuthorityData: ca}
	config.Contexts[p.Name] = &clientcmdapi.Context{Cluster: p.Name}
	if certificate != nil {
		config.AuthInfos["peer"] = &clientcmdapi.AuthInfo{ClientCertificate: certificate.Cert, ClientKey: certificate.Key}
		config.Contexts[p.Name].AuthInfo = "peer"
	}
	config.CurrentContext = p.Name
	file := filepath.Join(i.Directory, name+".kubeconfig")
	return file, clientcmd.WriteToFile(*config, file)
}
