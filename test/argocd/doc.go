// Package argocd proves that Argo CD understands what config/argocd tells it, with Argo CD's own code. It is a module of its own
// because nothing else here needs what that code depends on.
package argocd
