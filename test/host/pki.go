package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// certificate is a certificate with its private key.
type certificate struct {
	*x509.Certificate
	key             crypto.Signer
	certPEM, keyPEM []byte
}

func (c cluster) cert(name string) string { return c.path("pki", name+".crt") }
func (c cluster) key(name string) string  { return c.path("pki", name+".key") }

// issue creates a certificate that authority signs, or a CA certificate if authority is nil.
func issue(authority *certificate, subject pkix.Name, names ...string) (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: now.Add(-time.Minute), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	signer := &certificate{Certificate: template, key: key}
	if authority != nil {
		signer = authority
	} else {
		template.IsCA, template.ExtKeyUsage = true, nil
		template.KeyUsage |= x509.KeyUsageCertSign
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Certificate, key.Public(), signer.key)
	if err != nil {
		return nil, err
	}
	issued, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &certificate{
		Certificate: issued, key: key,
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// writePKI writes the CAs, the certificates that they sign, and a kubeconfig for each user.
func (c cluster) writePKI() error {
	if err := os.MkdirAll(c.path("pki"), 0o755); err != nil {
		return err
	}
	ca, err := c.writeCertificate("ca", nil, pkix.Name{CommonName: "kcp-host"})
	if err != nil {
		return err
	}
	front, err := c.writeCertificate("front-proxy-ca", nil, pkix.Name{CommonName: "front-proxy"})
	if err != nil {
		return err
	}
	masters := []string{"system:masters"}
	for _, leaf := range []struct {
		file      string
		authority *certificate
		subject   pkix.Name
		names     []string
	}{
		{"apiserver", ca, pkix.Name{CommonName: "kube-apiserver"}, []string{
			c.NodeIP(), c.APIServerIP(), "127.0.0.1", "localhost",
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}},
		{"kubelet", ca, pkix.Name{CommonName: "kubelet"}, []string{c.NodeIP(), c.NodeName()}},
		{"kubelet-client", ca, pkix.Name{CommonName: "kubelet-client", Organization: masters}, nil},
		{"front-proxy-client", front, pkix.Name{CommonName: "front-proxy-client"}, nil},
		{"service-accounts", nil, pkix.Name{CommonName: "service-accounts"}, nil},
	} {
		if _, err := c.writeCertificate(leaf.file, leaf.authority, leaf.subject, leaf.names...); err != nil {
			return err
		}
	}
	for user, subject := range map[string]pkix.Name{
		"admin":              {CommonName: "admin", Organization: masters},
		"controller-manager": {CommonName: "system:kube-controller-manager"},
		"node":               {CommonName: "system:node:" + c.NodeName(), Organization: []string{"system:nodes"}},
		"proxy":              {CommonName: "system:kube-proxy"},
		"scheduler":          {CommonName: "system:kube-scheduler"},
	} {
		if err := c.writeKubeconfig(user, ca, subject); err != nil {
			return err
		}
	}
	return giveTo(c.Kubeconfig("admin"))
}

func (c cluster) writeCertificate(file string, authority *certificate, subject pkix.Name, names ...string) (*certificate, error) {
	issued, err := issue(authority, subject, names...)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.cert(file), issued.certPEM, 0o644); err != nil {
		return nil, err
	}
	return issued, os.WriteFile(c.key(file), issued.keyPEM, 0o600)
}

func (c cluster) writeKubeconfig(user string, ca *certificate, subject pkix.Name) error {
	client, err := issue(ca, subject)
	if err != nil {
		return err
	}
	name := c.NodeName()
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server: "https://" + net.JoinHostPort(c.NodeIP(), "6443"), CertificateAuthorityData: ca.certPEM,
	}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: client.certPEM, ClientKeyData: client.keyPEM}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, c.Kubeconfig(user))
}
