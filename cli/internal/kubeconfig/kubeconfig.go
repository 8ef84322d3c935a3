// Package kubeconfig changes a kubeconfig when the user switches to another workspace: the context workspace.kcp.io/current is the
// current workspace, and workspace.kcp.io/previous is the one before.
package kubeconfig

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The contexts that this package manages. Each has a cluster of the same name.
const (
	Current  = "workspace.kcp.io/current"
	Previous = "workspace.kcp.io/previous"
)

// Overrides are the flags that override parts of the kubeconfig.
type Overrides struct {
	Context, Cluster, AuthInfo string
}

// entry is a context and its cluster.
type entry struct {
	context clientcmdapi.Context
	cluster clientcmdapi.Cluster
}

// active returns the context and cluster that kubectl uses.
func active(config *clientcmdapi.Config, o Overrides) (entry, error) {
	name := config.CurrentContext
	if o.Context != "" {
		name = o.Context
	}
	if name == "" {
		return entry{}, fmt.Errorf("kubeconfig has no current context; set one with kubectl config use-context%s", known(config))
	}
	return read(config, name, o)
}

func read(config *clientcmdapi.Config, name string, o Overrides) (entry, error) {
	context := config.Contexts[name]
	if context == nil {
		return entry{}, fmt.Errorf("kubeconfig has no context %q%s", name, known(config))
	}
	e := entry{context: *context.DeepCopy()}
	if o.Cluster != "" {
		e.context.Cluster = o.Cluster
	}
	if o.AuthInfo != "" {
		e.context.AuthInfo = o.AuthInfo
	}
	cluster := config.Clusters[e.context.Cluster]
	if cluster == nil {
		return entry{}, fmt.Errorf("kubeconfig has no cluster %q, which context %q refers to", e.context.Cluster, name)
	}
	e.cluster = *cluster.DeepCopy()
	return e, nil
}

func known(config *clientcmdapi.Config) string {
	var names []string
	for name := range config.Contexts {
		names = append(names, name)
	}
	if len(names) == 0 {
		return "; it has no contexts"
	}
	slices.Sort(names)
	return "; it has " + strings.Join(names, ", ")
}

// write stores e under name.
func write(config *clientcmdapi.Config, name string, e entry) {
	e.context.Cluster = name
	config.Contexts[name], config.Clusters[name] = &e.context, &e.cluster
}

// Enter returns config with the workspace at server as the current context, with the credentials in use, and the former current context
// as the previous one. The namespace is reset, because it belongs to the former workspace.
func Enter(config *clientcmdapi.Config, o Overrides, server string) (*clientcmdapi.Config, error) {
	to, err := active(config, o)
	if err != nil {
		return nil, err
	}
	if config.CurrentContext == Current && o == (Overrides{}) && to.cluster.Server == server {
		return config, nil
	}
	to.cluster.Server, to.context.Namespace = server, ""
	return leave(config, to), nil
}

// leave returns config with to as the current context, and the former current context, if any, as the previous one.
func leave(config *clientcmdapi.Config, to entry) *clientcmdapi.Config {
	changed := config.DeepCopy()
	if from, err := active(config, Overrides{}); err == nil {
		write(changed, Previous, from)
	}
	write(changed, Current, to)
	changed.CurrentContext = Current
	return changed
}

// Return returns config with the current and the previous context swapped, each with its user and namespace.
func Return(config *clientcmdapi.Config) (*clientcmdapi.Config, error) {
	if config.Contexts[Previous] == nil {
		return nil, fmt.Errorf("no previous workspace: kubeconfig has no context %q", Previous)
	}
	to, err := read(config, Previous, Overrides{})
	if err != nil {
		return nil, err
	}
	return leave(config, to), nil
}

// Add returns config with a context and a cluster of that name for the workspace at server. It replaces existing ones only if overwrite
// is set. With use, the context becomes the current one. The namespace is kept if the server stays the same.
func Add(config *clientcmdapi.Config, o Overrides, name, server string, overwrite, use bool) (*clientcmdapi.Config, error) {
	e, err := active(config, o)
	if err != nil {
		return nil, err
	}
	if config.Contexts[name] != nil && !overwrite {
		return nil, fmt.Errorf("kubeconfig already has a context %q; set --overwrite to replace it", name)
	}
	if config.Clusters[name] != nil && !overwrite {
		return nil, fmt.Errorf("kubeconfig already has a cluster %q; set --overwrite to replace it", name)
	}
	if e.cluster.Server != server {
		e.context.Namespace = ""
	}
	e.cluster.Server = server
	changed := config.DeepCopy()
	write(changed, name, e)
	if use {
		changed.CurrentContext = name
	}
	return changed, nil
}

// Save writes the changes to the kubeconfig files of access, with their locks held.
func Save(access clientcmd.ConfigAccess, config *clientcmdapi.Config) error {
	if err := clientcmd.ModifyConfig(access, *config, true); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}
