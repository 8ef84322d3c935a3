package options

import (
	"errors"

	"github.com/spf13/pflag"
)

// LeaderElection are the options of the leader election among the processes that share an etcd. The leader runs the controllers.
type LeaderElection struct {
	// Enabled switches leader election on. Without it, every process runs the controllers unless --run-controllers is false.
	Enabled bool
	// Namespace and Name of the lease, in the logical cluster system:admin.
	Namespace, Name string
}

func newLeaderElection() LeaderElection {
	return LeaderElection{Namespace: "kube-system", Name: "kcp-controllers"}
}

func (o *LeaderElection) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "enable-leader-election", o.Enabled,
		"Run the controllers only in one of the processes that share an etcd: the process that holds a lease.")
	fs.StringVar(&o.Namespace, "leader-election-namespace", o.Namespace, "Namespace of the lease, in the logical cluster system:admin.")
	fs.StringVar(&o.Name, "leader-election-name", o.Name, "Name of the lease.")
}

func (o *LeaderElection) validate() error {
	if o.Enabled && (o.Namespace == "" || o.Name == "") {
		return errors.New("--enable-leader-election: --leader-election-namespace and --leader-election-name must not be empty")
	}
	return nil
}
