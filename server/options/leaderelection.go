package options

import (
	"errors"

	"github.com/spf13/pflag"
)

// LeaderElection are the options of choosing the one process, of all that share an etcd, which runs the controllers.
type LeaderElection struct {
	// Enabled tells whether one is chosen. Without, the controllers run in every process that is to run them.
	Enabled bool
	// Namespace and Name of the lease, in the logical cluster system:admin.
	Namespace, Name string
}

func newLeaderElection() LeaderElection {
	return LeaderElection{Namespace: "kube-system", Name: "kcp-controllers"}
}

func (o *LeaderElection) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "enable-leader-election", o.Enabled,
		"Run the controllers only in the one process, of all that share an etcd, that holds a lease.")
	fs.StringVar(&o.Namespace, "leader-election-namespace", o.Namespace, "Namespace of the lease, in the logical cluster system:admin.")
	fs.StringVar(&o.Name, "leader-election-name", o.Name, "Name of the lease.")
}

func (o *LeaderElection) validate() error {
	if o.Enabled && (o.Namespace == "" || o.Name == "") {
		return errors.New("--enable-leader-election: --leader-election-namespace and --leader-election-name must not be empty")
	}
	return nil
}
