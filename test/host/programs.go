package main

import "os/exec"

// program is a program that runs on the node, outside of pods.
type program struct {
	name, file string
	args       []string
}

// components returns the programs in the order of their start. None waits for another: they retry.
func (c cluster) components() []program {
	kube := func(name string, args ...string) program { return program{name, c.built("kube"), args} }
	containerd, err := exec.LookPath("containerd")
	if err != nil {
		containerd = "/usr/bin/containerd"
	}
	return []program{
		kube("etcd",
			"--data-dir="+c.path("etcd"), "--log-level=warn",
			"--unsafe-no-fsync", // the data need not survive a crash of the machine
			"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380"),
		{"containerd", containerd, []string{"--config=" + c.path("containerd.toml")}},
		kube("kube-apiserver", c.apiServerArgs()...),
		kube("kube-controller-manager",
			"--kubeconfig="+c.Kubeconfig("controller-manager"), "--leader-elect=false", "--bind-address=127.0.0.1",
			"--use-service-account-credentials",
			"--service-account-private-key-file="+c.key("service-accounts"), "--root-ca-file="+c.cert("ca"),
			"--cluster-signing-cert-file="+c.cert("ca"), "--cluster-signing-key-file="+c.key("ca"),
			"--kube-api-qps=500", "--kube-api-burst=1000"), // with the defaults, creating the first objects takes seconds
		kube("kube-scheduler",
			"--kubeconfig="+c.Kubeconfig("scheduler"), "--leader-elect=false", "--bind-address=127.0.0.1"),
		kube("kubelet",
			"--config="+c.path("kubelet.yaml"), "--kubeconfig="+c.Kubeconfig("node"),
			"--root-dir="+c.path("kubelet"), "--cert-dir="+c.path("kubelet", "pki"),
			"--hostname-override="+c.NodeName(), "--node-ip="+c.NodeIP()),
		kube("kube-proxy", "--config="+c.path("kube-proxy.yaml")),
		kube("volumes", "--kubeconfig="+c.Kubeconfig("admin"), "--root="+c.path("volumes")),
	}
}

func (c cluster) apiServerArgs() []string {
	return []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--advertise-address=" + c.NodeIP(), "--secure-port=6443", "--service-cluster-ip-range=" + c.ServiceNet(),
		"--allow-privileged", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + c.cert("ca"),
		"--tls-cert-file=" + c.cert("apiserver"), "--tls-private-key-file=" + c.key("apiserver"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.cert("service-accounts"),
		"--service-account-signing-key-file=" + c.key("service-accounts"),
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority=" + c.cert("ca"),
		"--kubelet-client-certificate=" + c.cert("kubelet-client"), "--kubelet-client-key=" + c.key("kubelet-client"),
		"--requestheader-client-ca-file=" + c.cert("front-proxy-ca"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.cert("front-proxy-client"), "--proxy-client-key-file=" + c.key("front-proxy-client"),
	}
}
