package kcpaccess

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbac "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
)

// ownerLabel is on the role bindings that the operator creates inside of kcp.
const ownerLabel = "operator.kcp.io/kubeconfig"

// patience is how long the operator waits for a server that does not answer.
const patience = 10 * time.Second

// Credentials are the credentials of the operator for a kcp, in PEM, and its URL.
type Credentials struct {
	URL                                      string
	Certificate, CertificateKey, Authorities []byte
}

// Roles are the roles of a group in a workspace.
type Roles struct {
	// ID is the prefix of the names of the role bindings, and the value of their label.
	ID    string
	Group string
	// ClusterRoles to bind.
	ClusterRoles []string
}

// bindings returns the role bindings of Roles in a workspace.
func (r Roles) bindings() map[string]*rbacv1.ClusterRoleBinding {
	all := map[string]*rbacv1.ClusterRoleBinding{}
	for _, role := range r.ClusterRoles {
		name := r.ID + ":" + role
		all[name] = &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ownerLabel: r.ID}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: r.Group}},
		}
	}
	return all
}

// Bind creates and updates the role bindings of a group in a workspace, and deletes its others. Without roles, it deletes all. Credentials
// are those for the root shard; another shard may hold the workspace.
func Bind(ctx context.Context, credentials Credentials, workspace string, roles Roles) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	config := &rest.Config{UserAgent: "kcp-operator", TLSClientConfig: rest.TLSClientConfig{
		CertData: credentials.Certificate, KeyData: credentials.CertificateKey, CAData: credentials.Authorities,
	}}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	shard, cluster, err := locate(ctx, transport, credentials.URL, workspace)
	if err != nil {
		return fmt.Errorf("looking for the workspace %s: %w", workspace, err)
	}
	config.Host = shard + "/clusters/" + cluster
	client, err := rbac.NewForConfigAndClient(config, transport)
	if err != nil {
		return err
	}
	if err := bind(ctx, client.ClusterRoleBindings(), roles); err != nil {
		return fmt.Errorf("binding roles in the workspace %s: %w", workspace, err)
	}
	return nil
}

func bind(ctx context.Context, client rbac.ClusterRoleBindingInterface, roles Roles) error {
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: ownerLabel + "=" + roles.ID})
	if err != nil {
		return err
	}
	wanted := roles.bindings()
	var errs []error
	for _, live := range list.Items {
		want, ok := wanted[live.Name]
		if ok && equality.Semantic.DeepEqual(live.Subjects, want.Subjects) && live.RoleRef == want.RoleRef {
			delete(wanted, live.Name)
			continue
		}
		// The role of a binding is immutable: delete it and create it again.
		errs = append(errs, client.Delete(ctx, live.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &live.UID}}))
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		_, err := client.Create(ctx, wanted[name], metav1.CreateOptions{FieldManager: "kcp-operator"})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
