// Package tree reads the workspaces below a workspace, level by level, and prints them as a tree.
package tree

import (
	"context"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/location"
)

// Node is a workspace and its children, as printed in JSON and YAML.
type Node struct {
	Name    string                           `json:"name"`
	Path    string                           `json:"path"`
	Type    string                           `json:"type,omitempty"`
	Cluster string                           `json:"cluster,omitempty"`
	URL     string                           `json:"URL,omitempty"`
	Phase   corev1alpha1.LogicalClusterPhase `json:"phase,omitempty"`
	// LogicalClusterPhase is read only for wide output.
	LogicalClusterPhase corev1alpha1.LogicalClusterPhase `json:"logicalClusterPhase,omitempty"`
	// Note explains why the children are unknown.
	Note     string  `json:"note,omitempty"`
	Children []*Node `json:"children,omitempty"`

	at      location.Location
	entered bool // whether to read the children
}

// Reader reads workspaces.
type Reader interface {
	Children(ctx context.Context, l location.Location, limit int) ([]tenancyv1alpha1.Workspace, bool, error)
	LogicalCluster(ctx context.Context, l location.Location) (*corev1alpha1.LogicalCluster, error)
}

// parallel is the maximum number of concurrent requests.
const parallel = 8

// Read returns the workspace at l with everything below it. With wide it also reads the phases of the logical clusters. Workspaces that
// the user has no access to have a note instead of children.
func Read(ctx context.Context, r Reader, l location.Location, wide bool) (*Node, error) {
	root := &Node{Name: l.String(), Path: l.Cluster(), URL: l.URL(), at: l, entered: true}
	for level := []*Node{root}; len(level) > 0; {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(parallel)
		for _, node := range level {
			group.Go(func() error { return node.read(ctx, r, wide, node == root) })
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		var below []*Node
		for _, node := range level {
			below = append(below, node.Children...)
		}
		level = below
	}
	return root, nil
}

// read reads the children of a node. Only the root of the tree must be readable.
func (n *Node) read(ctx context.Context, r Reader, wide, must bool) error {
	if !n.entered {
		return nil
	}
	children, _, err := r.Children(ctx, n.at, 0)
	switch {
	case err == nil:
	case must:
		return err
	case apierrors.IsForbidden(err):
		n.Note = "no access"
	case apierrors.IsNotFound(err):
		n.Note = "gone"
	case apierrors.IsServiceUnavailable(err):
		n.Note = "unavailable"
	default:
		return err
	}
	if wide && n.Note == "" {
		if lc, err := r.LogicalCluster(ctx, n.at); err == nil {
			n.LogicalClusterPhase = lc.Status.Phase
			if must {
				n.Type, n.Cluster = lc.Annotations[tenancyv1alpha1.TypeAnnotation], lc.Annotations[corev1alpha1.ClusterAnnotation]
			}
		}
	}
	for i := range children {
		n.Children = append(n.Children, child(n.at, &children[i]))
	}
	return nil
}

func child(parent location.Location, ws *tenancyv1alpha1.Workspace) *Node {
	at := parent.Child(ws.Name)
	n := &Node{Name: ws.Name, Path: at.Cluster(), URL: ws.Spec.URL, Cluster: ws.Spec.Cluster, Phase: ws.Status.Phase, at: at}
	if ws.Spec.Type != nil {
		n.Type = ws.Spec.Type.String()
	}
	switch {
	case ws.Spec.Mount != nil:
		n.Note = "mount of " + ws.Spec.Mount.Reference.Kind + " " + ws.Spec.Mount.Reference.Name
	case ws.Spec.Cluster != "":
		n.entered = true
	}
	return n
}

// Style is the output style of a tree.
type Style struct {
	// Full shows paths instead of names.
	Full bool
	// Wide adds types and phases.
	Wide bool
}

// Draw prints the tree below n.
func Draw(w io.Writer, n *Node, style Style) error {
	if _, err := fmt.Fprintln(w, n.label(style)); err != nil {
		return err
	}
	return draw(w, n.Children, "", style)
}

func draw(w io.Writer, nodes []*Node, indent string, style Style) error {
	for i, node := range nodes {
		branch, below := "├── ", "│   "
		if i == len(nodes)-1 {
			branch, below = "└── ", "    "
		}
		if _, err := fmt.Fprintln(w, indent+branch+node.label(style)); err != nil {
			return err
		}
		if err := draw(w, node.Children, indent+below, style); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) label(style Style) string {
	text := n.Name
	if style.Full {
		text = n.Path
	}
	if style.Wide {
		for _, about := range []struct{ title, value string }{
			{"type", n.Type}, {"workspace", string(n.Phase)}, {"logical cluster", string(n.LogicalClusterPhase)},
		} {
			if about.value != "" {
				text += fmt.Sprintf("  %s: %s", about.title, about.value)
			}
		}
	}
	if n.Note != "" {
		text += " (" + n.Note + ")"
	}
	return text
}

// Paths returns the path of n and of all workspaces below it, parents first.
func (n *Node) Paths() []string {
	paths := []string{n.Path}
	for _, child := range n.Children {
		paths = append(paths, child.Paths()...)
	}
	return paths
}
