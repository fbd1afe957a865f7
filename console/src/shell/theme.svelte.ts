// Dark and light: as the system is, or as was chosen.

type Choice = 'system' | 'light' | 'dark';

class Theme {
  choice = $state<Choice>(read());
  constructor() {
    this.apply();
  }
  get isDark(): boolean {
    return this.choice === 'dark' || (this.choice === 'system' && matchMedia('(prefers-color-scheme: dark)').matches);
  }
  toggle = (): void => {
    this.choice = this.isDark ? 'light' : 'dark';
    localStorage.setItem('nacre-theme', this.choice);
    this.apply();
  };
  private apply(): void {
    if (this.choice === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.choice;
  }
}

function read(): Choice {
  const stored = localStorage.getItem('nacre-theme');
  return stored === 'light' || stored === 'dark' ? stored : 'system';
}

export const theme = new Theme();
